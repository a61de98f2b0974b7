"""What can go wrong with one measurement, in one line."""


class BenchError(Exception):
    """A peer that did not start, a load run that reported nothing: shown in the table, never hidden."""
