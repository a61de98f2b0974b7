"""What slb shows of itself: metrics, logs."""
