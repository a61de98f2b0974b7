"""`make simulate`: the policies of `slb.balance` in front of a fleet with caches, in simulated time."""
