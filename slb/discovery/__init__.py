"""Upstreams that others know of (Kubernetes, DNS, a file), written to the routes in Redis."""
