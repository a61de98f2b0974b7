"""Envoy keeps the traffic, slb decides: an external processor that picks upstreams for it."""
