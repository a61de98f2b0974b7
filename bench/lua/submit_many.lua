-- 1,000 jobs of 250 bytes in one request.
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
local job = '{"model":"bench","payload":{"prompt":"' .. string.rep("x", 237) .. '"}}'
wrk.body = "[" .. job .. string.rep("," .. job, 999) .. "]"
