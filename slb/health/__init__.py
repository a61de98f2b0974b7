"""Which upstreams are fit to serve: active checks shared by the fleet, passive ejection, panic."""
