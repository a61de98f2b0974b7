"""Figures of slb alone, each with the goal it is held to. See docs/benchmarks.md."""
