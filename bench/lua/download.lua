-- One MiB down in every reply; the request itself is the same each time.
wrk.headers["User-Agent"] = "bench/1"
wrk.headers["Accept"] = "application/json"
