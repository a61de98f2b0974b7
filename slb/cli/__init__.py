"""What a user types: parses and calls, decides nothing."""

from slb.cli.entry import main

__all__ = ["main"]
