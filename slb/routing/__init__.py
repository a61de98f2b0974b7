"""The mirror in memory: which route a path takes, and which upstreams serve it."""
