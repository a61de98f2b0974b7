"""The quota router: a backlog drained through it, beside batches without a router."""
