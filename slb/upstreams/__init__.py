"""Connections to upstreams: kept in pools, lent to one HTTP/1.1 exchange at a time."""
