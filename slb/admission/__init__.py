"""Which request takes the next slot, and which waits for it."""
