"""slb's jobs beside other job systems on Redis, and beside requests."""
