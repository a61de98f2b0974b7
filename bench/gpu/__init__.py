"""The global view: fleets of proxies in front of upstreams that serve one request at a time."""
