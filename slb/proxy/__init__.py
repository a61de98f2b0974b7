"""The data plane. Its files stand in the order in which a request meets them: see docs/architecture.md."""
