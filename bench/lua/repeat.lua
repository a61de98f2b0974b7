-- Every head is the same to the byte: wrk sends one prepared request over and over.
wrk.headers["User-Agent"] = "bench/1"
wrk.headers["Accept"] = "application/json"
