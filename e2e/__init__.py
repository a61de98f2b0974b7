"""The whole system as real processes: DNS, two instances, two upstreams, Redis, and a client that counts."""
