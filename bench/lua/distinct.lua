-- A traceparent of its own in every request (W3C Trace Context), so that no head comes twice.
local before, after, sent = "", "", 0

function init(args)
  wrk.headers["User-Agent"] = "bench/1"
  wrk.headers["Accept"] = "application/json"
  wrk.headers["traceparent"] = "@"
  local whole = wrk.format()
  local at = whole:find("@", 1, true)
  before, after = whole:sub(1, at - 1), whole:sub(at + 1)
end

-- 2654435761 is odd, so that the multiples do not come round again within 2^32 requests.
function request()
  sent = sent + 1
  local scrambled = (sent * 2654435761) % 4294967296
  return before .. string.format("00-4bf92f3577b34da6a3ce929d%08x-00f067aa%08x-01", scrambled, sent) .. after
end
