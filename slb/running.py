"""How one process runs: from its sockets to its exit code."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog
import uvloop

from slb import systemd
from slb.announcing import announce
from slb.app import App, extproc_server
from slb.config import Settings
from slb.core import Core, connected_core
from slb.lifecycle import Stopping, first_of, use_all_descriptors
from slb.listening import Sockets
from slb.observe.metrics import Metrics
from slb.proxy.tls import api_certificates, check_files
from slb.reload import Source, reload_on_hangup
from slb.takeover import Claim, Offer, Predecessor, StoppedEarly, open_sockets, start_at_signal

_log = structlog.get_logger("slb")


class Serving(Protocol):
    @property
    def core(self) -> Core: ...
    async def start(self) -> None: ...
    async def reconfigure(self, settings: Settings) -> None: ...
    def let_go(self) -> None: ...
    async def stop(self, hurried: asyncio.Event) -> bool: ...


def run(
    settings: Settings,
    source: Source,
    end_with_stdin: bool = False,
    revive: bool = True,
    make: Callable[[Core], Serving] = App,
) -> int:
    """`slb serve` with one process, which does what `make` gives; the exit code. `source`: where to read the
    settings again. `revive`: start an embedded server again when it dies; not in the demo. Raises SlbError."""
    if settings.calls_upstreams:
        check_files(settings)
    else:
        api_certificates(settings, Metrics())
    if "extproc" in settings.roles:
        extproc_server()
    with open_sockets(settings) as opened:
        return run_loop(lambda stopping: _serve(settings, source, opened, revive, make, stopping), end_with_stdin)


def run_loop(main: Callable[[Stopping], Coroutine[Any, Any, int]], end_with_stdin: bool) -> int:
    """Run `main` on uvloop; SIGTERM, SIGINT and, with `end_with_stdin`, the end of stdin ask it to stop."""

    use_all_descriptors()

    async def stoppable() -> int:
        stopping = Stopping()
        stopping.listen(end_with_stdin)
        return await main(stopping)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(stoppable())


async def _serve(
    settings: Settings,
    source: Source,
    opened: tuple[Sockets, Claim | None],
    revive: bool,
    make: Callable[[Core], Serving],
    stopping: Stopping,
) -> int:
    asked, (sockets, claim) = reload_on_hangup(), opened
    start_at_signal()
    async with connected_core(settings, sockets, revive) as core:
        follow(core, claim, stopping)
        app = make(core)
        core.follow_settings(source, app.reconfigure, asked)
        no_table_wanted = not settings.calls_upstreams
        name = core.instances.info.name
        offer = Offer(sockets, name, core.sharing_changed, lambda pid: leave(app.let_go, stopping, pid))
        return await serve_app(app, stopping, lambda: announce(core, no_table_wanted or core.mirror.ready), offer)


def leave(let_go: Callable[[], None], stopping: Stopping, successor: int) -> None:
    """The process `successor` (0: it is in another container) serves: accept no more where it does, and stop."""
    _log.info("replaced", by=successor)
    if successor:
        systemd.notify(MAINPID=successor)
    let_go()
    stopping.requested.set()


def follow(core: Core, claim: Claim | None, stopping: Stopping, on_gone: Callable[[], None] = lambda: None) -> None:
    """Where this process has taken another's sockets: let `core` follow that. `on_gone` is called once it accepts
    no more."""
    if claim is None:
        return
    taken = claim.sockets

    def gone() -> None:
        core.sockets.shared.difference_update(taken)
        on_gone()

    core.follow(Predecessor(stopping.requested, core.tasks.failed, claim=claim), gone)


async def serve_app(
    app: Serving, stopping: Stopping, started: Callable[[], None], offer: Offer | None = None
) -> int:
    """Serve until asked to stop, until a part ends, or until another process has taken what `offer` offers; the
    exit code."""
    core, failed = app.core, app.core.tasks.failed
    try:
        await app.start()
    except StoppedEarly:
        await core.stop()
        return int(failed.is_set())
    started()
    await core.replace_predecessor()
    await offered_until(offer, core, stopping.requested, failed)
    cut_off = await app.stop(stopping.hurried)
    return int(failed.is_set() or cut_off)


async def offered_until(offer: Offer | None, core: Core, *ends: asyncio.Event) -> None:
    """Let other processes take what `offer` offers, until one of the events is set."""
    if offer is not None:
        offer.start(core.settings.data_dir)
    await first_of(*ends)
    if offer is not None:
        await offer.close()
