-- One job, 250 bytes of payload; its id is made by slb.
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
wrk.body = '{"model":"bench","payload":{"prompt":"' .. string.rep("x", 237) .. '"}}'
