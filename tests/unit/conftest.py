"""How hypothesis runs here: few examples each, many runs; no deadline, since machines are busy."""

from hypothesis import settings

settings.register_profile("unit", max_examples=60, deadline=None, database=None)
settings.load_profile("unit")
