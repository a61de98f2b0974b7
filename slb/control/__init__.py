"""The shared truth in Redis. The only room that imports redis."""
