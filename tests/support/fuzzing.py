"""How long tests look for examples that fail: SLB_FUZZ_SECONDS, 10 unless it is set; CI has 40."""

import os

SECONDS = float(os.environ.get("SLB_FUZZ_SECONDS", "10"))


def examples(of_60_seconds: int) -> int:
    """How many of a property test that has so many where SECONDS are 60."""
    return max(10, int(of_60_seconds * SECONDS / 60))
