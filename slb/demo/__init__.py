"""`slb demo`: a fleet on one machine, what may happen to it, and an account of every request."""

from slb.demo.show import run_demo

__all__ = ["run_demo"]
