"""Which upstream gets the request. Pure: no I/O, no clock, no random numbers but those passed in."""
