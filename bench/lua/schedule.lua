-- The quota router's question, 64 estimates in turn.
local prepared, sent = {}, 0

function init(args)
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["User-Agent"] = "bench/1"
  for i = 1, 64 do
    prepared[i] = wrk.format("POST", nil, nil, '{"estimated_tokens":' .. (100 + i * 7) .. '}')
  end
end

function request()
  sent = sent + 1
  return prepared[sent % 64 + 1]
end
