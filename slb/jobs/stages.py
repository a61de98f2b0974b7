"""At which models' GPUs the jobs of a model may go on, and in which order. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Has = Callable[[str], bool]
"""Whether a model has a GPU. "" is the jobs' own model, here and below."""


class Stage(NamedTuple):
    """GPUs of the model `on` take jobs that are at one of the models `sources`, itself among them."""

    on: str
    sources: tuple[str, ...]


def stages_of(fallbacks: Sequence[str], waiting: Iterable[str], has_gpu: Has) -> list[Stage]:
    """`waiting`: the models at which jobs wait. What waits at one that has no GPU goes on at the next that has one;
    at one that is no fallback any more, at the first."""
    passed_over = [each for each in waiting if each and each not in fallbacks]
    found = []
    for on in ("", *fallbacks):
        passed_over.append(on)
        if has_gpu(on):
            found.append(Stage(on, tuple(passed_over)))
            passed_over = []
    return found


def next_after(on: str, fallbacks: Sequence[str], has_gpu: Has) -> str:
    """Where a job goes on that was tried at `on` as often as it may be; "" where it does not."""
    behind = fallbacks[fallbacks.index(on) + 1 :] if on in fallbacks else () if on else fallbacks
    return next((each for each in behind if has_gpu(each)), "")
