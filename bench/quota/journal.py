"""What a caller process does, written down step by step, so that nothing it knew dies with it; and the book that
the files of all callers make.

A line is in the file before anything else happens, one before a caller says that a task is done, one after anything
else was answered. Times are of the machine's monotonic clock, which all processes share.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.quota.book import FOREVER, Book, Entry
from slb.quota.asking import Asking


class Journal:
    """Puts into `file` what is asked and answered."""

    def __init__(self, asking: Asking, file: Path) -> None:
        self._asking = asking
        self._file = file.open("ab", buffering=0)

    def open(self) -> None:
        self._asking.open()

    async def close(self) -> None:
        await self._asking.close()
        self._file.close()

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        said, asked = body or {}, time.monotonic()
        if path == "/complete":
            self._write(event="done", task=said["task_id"], at=asked)
        answer = await self._asking.ask(method, path, body)
        if path == "/heartbeat" and answer["ok"]:
            self._write(event="alive", task=said["task_id"], at=asked)
        elif path == "/schedule" and "task_id" in answer:
            task, model = answer["task_id"], answer["model_backend_id"]
            told = time.monotonic()
            self._write(
                event="told", task=task, model=model, estimate=said["estimated_tokens"], asked=asked, told=told
            )
        return answer

    def _write(self, **line: Any) -> None:
        self._file.write(orjson.dumps(line) + b"\n")


@dataclass
class Journals:
    """`tasks` by their id. `alive`: when each was last said to be alive. `twice`: tasks that two asks were answered
    with."""

    tasks: dict[str, Entry] = field(default_factory=dict)
    alive: dict[str, float] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, files: Iterable[Path]) -> "Journals":
        """All lines; the last of a killed caller may be cut short, and says nothing then."""
        journals = cls()
        for file in files:
            whole, _, _ = file.read_bytes().rpartition(b"\n")
            for line in whole.splitlines():
                journals._replay(orjson.loads(line))
        return journals

    def _replay(self, line: Mapping[str, Any]) -> None:
        task = line["task"]
        match line["event"]:
            case "told":
                if task in self.tasks:
                    self.twice.append(task)
                self.tasks[task] = Entry(line["model"], line["estimate"], line["asked"], line["told"])
                self.alive[task] = line["asked"]
            case "alive":
                self.alive[task] = line["at"]
            case "done":
                self.tasks[task].ended = line["at"]

    def in_hand(self) -> list[str]:
        """Tasks that no caller has said are done."""
        return [task for task, entry in self.tasks.items() if entry.ended == FOREVER]

    def book(self, abandoned: Iterable[str], lease: float) -> Book:
        """What must be true of it is true of what happened: a task whose caller died, and one that the router took
        back, held its slot until `lease` seconds after the last sign of life, and came to nothing after that."""
        lost = set(abandoned)
        book = Book()
        for task, entry in sorted(self.tasks.items(), key=lambda each: each[1].admitted):
            if task in lost or entry.ended == FOREVER:
                entry.ended = max(entry.admitted, min(entry.ended, self.alive[task] + lease))
            if task in lost:
                entry.actual = 0
            book.enter(entry)
        return book
