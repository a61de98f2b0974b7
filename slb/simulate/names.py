"""What the experiments are called."""

from enum import StrEnum


class Name(StrEnum):
    """What may be typed after `slb simulate`."""

    RING = "ring"
    FADE_IN = "fade-in"
    BOUNDED = "bounded"
    ZONES = "zones"
