"""Which upstreams are fit to serve: active checks shared by the fleet, and one loop for them and for ejection."""
