"""slb and its peers under the same load, one after another on one core. See docs/benchmarks.md."""
