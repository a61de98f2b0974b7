-- JSON bodies of 1 to 3 KiB, 2 KiB in the mean, 64 lengths in turn: Content-Length differs from request to request.
local prepared, sent = {}, 0

function init(args)
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["User-Agent"] = "bench/1"
  for i = 1, 64 do
    local length = 1024 + ((i * 37) % 64) * 32
    local frame = '{"model":"stand-in","prompt":""}'
    local body = '{"model":"stand-in","prompt":"' .. string.rep("x", length - #frame) .. '"}'
    prepared[i] = wrk.format("POST", nil, nil, body)
  end
end

function request()
  sent = sent + 1
  return prepared[sent % 64 + 1]
end
