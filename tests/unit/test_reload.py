"""A reload holds whole or not at all, whatever goes wrong; the life of the process does not hang on it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slb.config import Settings
from slb.errors import ConfigError
from slb.loading import load_settings
from slb.reload import Reloader, Source
from tests.support.waiting import eventually


def settings(**values: object) -> Settings:
    return load_settings(values, {})


class Process:
    """What reloads: `held`, the settings that hold, one after another. `breaks_over` cannot be applied."""

    def __init__(self, load: Callable[[], Settings], files: tuple[Path, ...] = ()) -> None:
        self.held: list[int] = []
        self.breaks_over: set[int] = set()
        self.counted: list[str] = []

        def read(note: Callable[[Path], None]) -> Settings:
            for file in files:
                note(file)
            return load()

        self.reloader = Reloader(
            settings(max_headers=1), Source(read), self.apply, self.counted.append, look_every=0.005
        )

    async def apply(self, wanted: Settings) -> None:
        self.held.append(wanted.max_headers)
        if wanted.max_headers in self.breaks_over:
            raise RuntimeError("halfway")


def fails(error: Exception) -> Callable[[], Settings]:
    def load() -> Settings:
        raise error

    return load


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ConfigError("retries = 'many'"), "retries = 'many'"),
        (PermissionError("not yours"), "PermissionError('not yours')"),
    ],
)
async def test_settings_that_cannot_be_read_are_refused_and_logged(error: Exception, fault: str) -> None:
    process = Process(fails(error))
    with capture_logs() as lines:
        await process.reloader.reload()
    assert (process.held, process.counted) == ([], ["refused"])
    assert [(line["event"], line["error"]) for line in lines] == [("settings_refused", fault)]
    assert ("exc_info" in lines[0]) == isinstance(error, PermissionError)


async def test_each_reload_logs_what_holds_from_now_and_what_waits_for_a_restart() -> None:
    elsewhere = settings(max_headers=1, listen="127.0.0.1:9")
    read = iter([elsewhere, settings(max_headers=2, listen="127.0.0.1:9"), settings(max_headers=2)])
    process = Process(lambda: next(read))
    with capture_logs() as lines:
        for _ in range(3):
            await process.reloader.reload()
    assert [(line["event"], line["names"]) for line in lines] == [
        ("settings_need_restart", ["listen"]),
        ("settings_need_restart", ["listen"]),
        ("settings_reloaded", ["max_headers"]),
        ("settings_reloaded", []),
    ]


async def test_settings_that_hold_only_in_part_are_taken_back() -> None:
    read = iter([settings(max_headers=2), settings(max_headers=3), settings(max_headers=4)])
    process = Process(lambda: next(read))
    process.breaks_over = {3}
    with capture_logs() as lines:
        for _ in range(3):
            await process.reloader.reload()
    assert process.held == [2, 3, 2, 4]
    assert process.counted == ["applied", "refused", "applied"]
    assert [line["error"] for line in lines if line["event"] == "settings_refused"] == ["RuntimeError('halfway')"]


async def test_following_the_files_goes_on_after_a_reload_that_failed(tmp_path: Path) -> None:
    file = tmp_path / "slb.toml"
    file.write_text("a")
    process = Process(fails(RuntimeError("broken")), (file,))
    asked = asyncio.Event()
    following = asyncio.create_task(process.reloader.run(asked))
    for times in (1, 2):
        asked.set()
        await eventually(lambda times=times: len(process.counted) >= times)  # type: ignore[misc]
    assert not following.done()
    following.cancel()
    await asyncio.wait([following])


async def test_files_are_followed_that_only_the_last_reading_named(tmp_path: Path) -> None:
    """A file of tokens names files of secrets, and may name others tomorrow."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(str(second))

    def read(note: Callable[[Path], None]) -> Settings:
        note(first)
        named = Path(first.read_text())
        note(named)
        if not named.exists():
            raise ConfigError(f"{named} is not there")
        return settings(max_headers=int(named.read_text()))

    source, counted, held = Source(read), list[str](), list[int]()

    async def apply(wanted: Settings) -> None:
        held.append(wanted.max_headers)

    with pytest.raises(ConfigError):
        source.load()
    reloader = Reloader(settings(max_headers=1), source, apply, counted.append, look_every=0.005)
    following = asyncio.create_task(reloader.run(asyncio.Event()))
    second.write_text("2")
    await eventually(lambda: held == [2])
    second.write_text("33")
    await eventually(lambda: held == [2, 33])
    (tmp_path / "third").write_text("444")
    first.write_text(str(tmp_path / "third"))
    await eventually(lambda: held == [2, 33, 444])
    (tmp_path / "third").write_text("5555")
    await eventually(lambda: held == [2, 33, 444, 5555])
    following.cancel()
    await asyncio.wait([following])
