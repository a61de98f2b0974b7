"""Jobs, while what serves them dies: real dispatchers, a real server with an append-only file, GPUs that keep a
book. What judges the history shares no code with slb."""
