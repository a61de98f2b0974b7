"""The handoff: how long a pod that serves one request at a time is idle while others wait for it."""
