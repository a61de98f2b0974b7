"""The library: load balancing inside the process that makes the calls."""
