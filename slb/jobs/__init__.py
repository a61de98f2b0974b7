"""The job dispatcher: jobs are submitted once, run where a slot is free, and end exactly once, whatever dies."""
