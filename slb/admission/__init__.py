"""May it go now: which request takes the next slot, and which waits for it."""
