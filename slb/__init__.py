"""slb: a distributed reverse-proxy load balancer."""

from importlib.metadata import version

__version__ = version("slb")
