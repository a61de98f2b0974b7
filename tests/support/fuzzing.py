"""How long tests look for examples that fail: SLB_FUZZ_SECONDS, 10 unless it is set; CI has 60."""

import os

SECONDS = float(os.environ.get("SLB_FUZZ_SECONDS", "10"))


def examples(of_60_seconds: int) -> int:
    """How many of a property test, where it has so many in CI."""
    return max(10, int(of_60_seconds * SECONDS / 60))
