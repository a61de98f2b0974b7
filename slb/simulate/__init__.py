"""`slb simulate`: a lab in simulated time, where the policies of `slb.balance` meet a fleet with warm caches."""
