"""The quota router: a backlog drained through it, beside batches that nobody controls."""
