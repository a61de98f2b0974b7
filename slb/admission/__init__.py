"""May it go now: who takes the next slot, and who waits for it."""
