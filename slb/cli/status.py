"""`slb status`: one instance at a glance, once or every second; two looks give the rates. `slb instances`: all."""

import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from slb.cli.client import ApiClient, ApiError
from slb.cli.console import Rows, make_console, moment, show, show_json, show_pairs
from slb.cli.options import DEFAULT_URL, CaOption, JsonOption, TokenOption, UrlOption, duration_option
from slb.cli.tables import Json, live_tables, overview, summary, unknown_routes
from slb.names import natural

if TYPE_CHECKING:
    from rich.console import Group

_INSTANCE_COLUMNS = ("name", "address", "api", "version", "roles", "host", "pid")
_PERIOD = 1.0  # seconds between two pictures of --watch
_SHARE = 0.1  # of the time, about this much goes into asking for all routes: with thousands it takes a while


def status(
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
    over: Annotated[str, typer.Option(help="How long rates are measured; 0 shows none.")] = "1s",
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """How one instance is: its Redis, its pools, its upstreams and their health, what is in flight here and
    everywhere, who waits, requests a second."""
    client, seconds = ApiClient(url, token, ca), duration_option("over", over)
    if watch:
        _watch(client, as_json)
    elif as_json:
        show_json(client.call("GET", "/status"))
    else:
        _once(client, seconds)


def _once(client: ApiClient, seconds: float) -> None:
    first, begun = client.call("GET", "/status"), time.monotonic()
    time.sleep(seconds)
    answer = client.call("GET", "/status") if seconds else first
    rates = _rates(first, answer, time.monotonic() - begun) if seconds else None
    routes = client.call("GET", "/routes")["routes"]
    show_pairs(overview(answer, rates))
    for table in live_tables(answer, routes, rates):
        show(table)
    if unknown := unknown_routes(answer):
        typer.echo(unknown)


def _rates(before: Json, after: Json, seconds: float) -> dict[str, float]:
    counts, earlier = after["traffic"]["by_route"], before["traffic"]["by_route"]
    return {route: max(0, count - earlier.get(route, 0)) / seconds for route, count in counts.items()}


def instances(
    as_json: JsonOption = False, url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None
) -> None:
    """Every instance that is alive."""
    answer = ApiClient(url, token, ca).call("GET", "/instances")
    if as_json:
        show_json(answer)
        return
    table = Rows((*_INSTANCE_COLUMNS, "started"), spare=("pid", "roles", "version", "host", "started"))
    for each in sorted(answer["instances"], key=lambda each: natural(str(each.get("name", "")))):
        table.add_row(*(_cell(each.get(name, "")) for name in _INSTANCE_COLUMNS), moment(each.get("started")))
    show(table)
    if answer["stale"]:
        typer.echo("Redis does not answer: this is the list last known.")


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# -- every second


def _watch(client: ApiClient, as_json: bool) -> None:
    """Fails where the first call gets no answer; later ones may fail."""
    with until_stopped():
        if as_json:
            for _ in ticks():
                typer.echo(orjson.dumps(client.call("GET", "/status")))
                sys.stdout.flush()
        else:
            draw(_pictures(client))


@contextmanager
def until_stopped() -> Iterator[None]:
    """Ctrl-C, or SIGTERM, ends the block, with exit code 0."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, or the cursor would stay hidden
    with suppress(KeyboardInterrupt):
        yield


def draw(pictures: "Iterable[Group]") -> None:
    """In place on a terminal, else one below the other."""
    from rich.live import Live

    console = make_console()
    if not console.is_terminal:
        for picture in pictures:
            console.print(picture)
            sys.stdout.flush()
        return
    with Live(console=console, auto_refresh=False) as live:
        for picture in pictures:
            live.update(picture, refresh=True)


def ticks() -> Iterator[None]:
    due = time.monotonic()
    while True:
        yield
        due = max(due + _PERIOD, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def _pictures(client: ApiClient) -> "Iterator[Group]":
    """Raises ApiError where the first call fails; later pictures have the error instead."""
    from rich.console import Group

    status, at, routes, routes_due = client.call("GET", "/status"), time.monotonic(), [], 0.0
    rates: dict[str, float] | None = None
    for _ in ticks():
        try:
            answer, now = client.call("GET", "/status"), time.monotonic()
            if status["id"] == answer["id"] and now - at > _PERIOD / 2:
                rates = _rates(status, answer, now - at)
            status, at = answer, now
            if now >= routes_due:
                routes, ended = client.call("GET", "/routes")["routes"], time.monotonic()
                routes_due = ended + (ended - now) / _SHARE
            line = summary(status, rates)
        except ApiError as error:
            line = str(error)
        moment = f"{datetime.now().astimezone():%H:%M:%S}"
        yield Group(f"{moment}  {line}", *live_tables(status, routes, rates))
