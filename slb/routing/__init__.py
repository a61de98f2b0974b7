"""The mirror in memory: which route a path takes, and who serves it."""
