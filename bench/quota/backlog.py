"""A backlog of prompts whose lengths are those of real LLM traffic."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.errors import BenchError
from bench.gpu.traces import TRACES
from bench.gpu.work import log_normal

LUCK_CV = 0.2


@dataclass(frozen=True, slots=True)
class Work:
    """One prompt. `estimate` is what its caller expects in all, `generated` is known once it is answered. `luck`
    is by how much a call takes longer than its length says, or shorter."""

    number: int
    context: int
    generated: int
    estimate: int
    luck: float

    @property
    def tokens(self) -> int:
        return self.context + self.generated


def made(lengths: Sequence[tuple[int, int]], rng: Random) -> list[Work]:
    """`lengths`: tokens of the prompt and of the answer. A caller knows the prompt and expects the mean answer."""
    expected = round(sum(generated for _, generated in lengths) / len(lengths))
    luck = log_normal(rng, 1.0, LUCK_CV, len(lengths))
    return [
        Work(number, context, generated, context + expected, luck[number])
        for number, (context, generated) in enumerate(lengths)
    ]


def traced(folder: Path, count: int, seed: int) -> list[Work]:
    """`count` prompts drawn without replacement from all traces in `folder` (all where there are fewer), shuffled.
    Raises BenchError where there are no traces."""
    lengths = [length for name in TRACES.values() for length in read_lengths(folder / name)]
    rng = Random(seed)
    rng.shuffle(lengths)
    return made(lengths[:count], rng)


def read_lengths(path: Path) -> list[tuple[int, int]]:
    """Tokens of the prompt and of the answer, line by line. Raises BenchError."""
    try:
        with path.open(newline="") as file:
            return [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    except OSError as error:
        raise BenchError(f"the lab's token counts come from real traces: {path}: {error.strerror}") from None
    except (KeyError, ValueError) as error:
        raise BenchError(f"{path.name} is no trace: {error}") from None
