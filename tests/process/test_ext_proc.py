"""`slb ext-proc` as a process: it says where it listens, answers Envoys, and drains when it is asked to stop."""

import os
import re
import signal
from functools import partial

import pytest

from slb.extproc.health import NOT_SERVING, SERVING
from slb.extproc.words import SERVICE
from tests.extproc.rig import Envoy
from tests.process.commands import Commands, Serving
from tests.process.serving import events
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, until

A = "10.0.0.1:8000"
ROLES = ("--roles", "proxy,extproc")
FREE = {"SLB_EXTPROC_LISTEN": "127.0.0.1:0"}


async def _asked(slb: Commands, serving: Serving) -> Envoy:
    """An Envoy that asks it; it has a route."""
    found = re.search(r"ext_proc ([0-9.:]+)", serving.line)
    assert found is not None, serving.line
    await slb.run("register", "/p", A, "--url", serving.api)
    return Envoy(found[1])


async def test_it_chooses_for_envoys_beside_its_own_traffic_and_drains(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(
        await slb.serve(*ROLES, redis=valkey.url, env={**FREE, "SLB_DRAIN_DELAY": "1s"})
    )
    envoy = await _asked(slb, serving)
    await until(partial(envoy.health, SERVICE), lambda found: found == SERVING)
    stream = await envoy.ask()
    assert await stream.hosts() == [A]
    os.kill(serving.process.pid, signal.SIGTERM)
    await until(partial(envoy.health, SERVICE), lambda found: found == NOT_SERVING)
    await stream.replied()
    await stream.end()
    assert await serving.process.ended() == 0
    await eventually(lambda: any(line["path"] == "/p" for line in events(serving, "request")))
    assert events(serving, "requests_cut_off") == []
    await envoy.close()


async def test_told_twice_it_cuts_streams_off_and_gives_their_slots_back(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(*ROLES, redis=valkey.url, env=FREE))
    envoy = await _asked(slb, serving)
    assert (await slb.run("route", "set", "/p", "max_inflight=1", "--url", serving.api)).code == 0
    await slb.until_json(f"{serving.api}/routes/p", lambda found: found["settings"]["max_inflight"] == 1)
    stream = await envoy.ask()
    await stream.hosts()
    await eventually(lambda: valkey.admin.zscore("slb:{/p}:inflight", A) == 1)
    os.kill(serving.process.pid, signal.SIGTERM)
    await eventually(lambda: bool(events(serving, "stopping")))
    os.kill(serving.process.pid, signal.SIGTERM)
    await serving.process.ended()
    assert not valkey.admin.zscore("slb:{/p}:inflight", A)
    await envoy.close()


async def test_a_port_in_use_is_one_clear_line(slb: Commands, valkey: Valkey) -> None:
    serving = await slb.until_ready(await slb.serve(*ROLES, redis=valkey.url, env=FREE))
    found = re.search(r"ext_proc ([0-9.:]+)", serving.line)
    assert found is not None
    words = ("--listen", found[1], "--api", "127.0.0.1:0", "--redis", valkey.url)
    ended = await slb.run("ext-proc", *words, "--data-dir", str(slb.directory / "other"))
    assert ended.code == 1
    assert f"{found[1]} cannot be listened on (setting extproc_listen)" in ended.err


@pytest.mark.parametrize(
    ("words", "why"),
    [(("--workers", "2"), "extproc has none"), (("--roles", "extproc", "--workers", "2"), "workers")],
)
async def test_it_has_no_workers(slb: Commands, words: tuple[str, ...], why: str) -> None:
    ended = await slb.run("serve", *ROLES, *words)
    assert ended.code == 1
    assert why in ended.err


async def test_without_grpc_it_says_what_to_install(slb: Commands) -> None:
    hidden = slb.directory / "hidden" / "grpc"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('No module named grpc')")
    alone = Commands(slb.directory)
    try:
        path = f"{hidden.parent}:{os.environ.get('PYTHONPATH', '')}"
        ended = await alone.run("ext-proc", "--api", "127.0.0.1:0", env={"PYTHONPATH": path})
    finally:
        await alone.close()
    assert ended.code == 1
    assert "pip install slb[extproc]" in ended.err
