-- Appended to every case. One line for bench/load.py; latencies and duration in microseconds.
-- No response() is defined anywhere: wrk would then parse every header in Lua, and the load would be the limit.
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'bench-report {"requests":%d,"duration_us":%d,"bytes":%d,"p50_us":%d,"p99_us":%d,'
      .. '"status":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d}\n',
    summary.requests, summary.duration, summary.bytes,
    latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect, errors.read, errors.write, errors.timeout))
end
