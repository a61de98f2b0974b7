"""`slb drain`, `undrain`: send upstreams nothing new, and wait until the fleet has nothing in flight there."""

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol
from urllib.parse import quote

import typer

from slb.cli.client import ApiClient, ApiError
from slb.cli.console import show_json
from slb.cli.options import DEFAULT_URL, CaOption, Misused, TokenOption, UrlOption, duration_option
from slb.errors import NO_ROUTE

_Targets = Annotated[list[str], typer.Argument(help="Upstreams, such as 10.0.0.1:80 or https://gpu-1.")]
_TIMEOUT = "10m"
_LOOK = 1.0
"""Seconds between two looks."""
_LOOKS = 2
"""In a row that have to find nothing: between them a job of an instance that has died is taken up by another."""


def drain(
    targets: _Targets,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until the whole fleet has nothing in flight there.")
    ] = False,
    timeout: Annotated[
        str | None, typer.Option(help=f"How long to wait; the exit code is 1 then [{_TIMEOUT}].")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Without being asked where a route is left with no upstream.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print at the end what the fleet has in flight at each.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> int | None:
    """Send upstreams nothing new, on any route; requests they are serving finish."""
    if timeout is not None and not wait:
        raise Misused("--timeout goes with --wait")
    seconds = duration_option("timeout", timeout or _TIMEOUT)
    client = ApiClient(url, token, ca)
    if not yes:
        _confirm_if_last(client, targets)
    found: dict[str, Any] = {}
    for target in targets:
        answer = _called(client, "PATCH", target, body={"drain": True})
        if not wait:
            found[target] = client.call("GET", f"/fleet{_path(target)}")
            if not as_json:
                typer.echo(f"{answer['member']}: is sent nothing new, {_in_words(found[target])}")
        if answer["last_of"]:
            typer.echo(f"slb: {'; '.join(left_in(route, 'answers') for route in answer['last_of'])}", err=True)
    code = Waiting(client, targets, seconds, found, tells=not as_json).until_empty() if wait else None
    if as_json:
        missing = [each for each in targets if each not in found]
        show_json({"upstreams": [found[each] for each in targets if each in found], "missing": missing})
    return code


def undrain(
    targets: _Targets, url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None
) -> None:
    """Send upstreams requests again."""
    client = ApiClient(url, token, ca)
    for target in targets:
        answer = _called(client, "PATCH", target, body={"drain": False})
        typer.echo(f"{answer['member']}: takes requests again")


def _path(target: str) -> str:
    return f"/upstreams/{quote(target, safe='')}"


def _called(client: ApiClient, method: str, target: str, query: str = "", body: Any = None) -> Any:
    """Raises ApiError, which says what to type where no route names the upstream."""
    try:
        return client.call(method, _path(target) + query, body)
    except ApiError as error:
        if error.reason == NO_ROUTE.name:
            wanted = "slb upstreams shows those that there are, slb register PATH TARGET makes one"
            raise ApiError(f"there is no upstream {target} on any route ({wanted})", error.reason) from None
        raise


def _confirm_if_last(client: ApiClient, targets: Sequence[str]) -> None:
    """Raises ApiError where a route would be left without an upstream, and nobody says that this is meant."""
    besides = f"?besides={quote(','.join(targets))}" if len(targets) > 1 else ""
    shown = [_called(client, "GET", target, besides) for target in targets]
    last = {route["path"]: route for each in shown if not each["drain"] for route in each["last_of"]}
    if not last:
        return
    left = "; ".join(left_in(route, "would answer") for route in last.values())
    if not sys.stdin.isatty():
        raise ApiError(f"nothing is drained, for {left} (--yes drains all the same)")
    typer.echo(f"slb: {left}", err=True)
    if not typer.confirm("Drain all the same?"):
        raise ApiError("nothing is drained")


def left_in(route: Mapping[str, Any], answers: str) -> str:
    """What a drain leaves in a route of which it is the last one: it `answers` 503, or would."""
    path, others = route["path"], route["others"]
    if not others:
        return f"{path} has no other upstream that takes requests: it {answers} 503 (no_upstream)"
    are = "1 is" if others == 1 else f"{others} are"
    return f"{path} has no other upstream that is up: {are} down, or ejected and not back"


def _in_words(found: Mapping[str, Any]) -> str:
    """What is in flight in the fleet, where, and what is not known of it."""
    where = [f"{count} at {name}" for name, count in found["instances"].items()]
    if found["elsewhere"]:
        where.append(f"{found['elsewhere']} at none of the instances")
    several = f" ({', '.join(where)})" if len(where) > 1 or found["elsewhere"] else ""
    parts = [f"{found['inflight']} in flight in the fleet{several}"]
    if found["unknown"]:
        parts.append(f"not known of {', '.join(found['unknown'])}")
    if found["unaware"]:
        parts.append(f"not yet followed by {', '.join(found['unaware'])}")
    if found["elsewhere"] is None:
        parts.append("Redis does not say what others hold")
    return "; ".join(parts)


class Client(Protocol):
    """What is asked of an `ApiClient`."""

    def call(self, method: str, path: str) -> Any: ...


class Waiting:
    """Looks each second. On a terminal one line has what was found last; elsewhere what was found first is printed,
    and the end; nothing without `tells`. `found` gets the last answer about each upstream; one about which there is
    none is not in it. `clock`: seconds."""

    def __init__(
        self,
        client: Client,
        targets: Sequence[str],
        seconds: float,
        found: dict[str, Any],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        tells: bool = True,
    ) -> None:
        self._found = found
        self._tells = tells
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._empty = dict.fromkeys(targets, 0)
        self._until = clock() + seconds
        self._words: dict[str, str] = {}
        self._followed: set[str] = set()
        self._is_terminal, self._is_first = tells and sys.stdout.isatty(), tells

    def until_empty(self) -> int:
        """The exit code: 1 where the time is over. Raises ApiError where that is in vain."""
        while True:
            for target in [each for each, looks in self._empty.items() if looks < _LOOKS]:
                self._look(target)
            waits = [each for each, looks in self._empty.items() if looks < _LOOKS]
            if not waits:
                self._line("")
                return 0
            left = self._until - self._clock()
            if left <= 0:
                self._line("")
                for target in waits:
                    typer.echo(f"slb: the time is over: {target}: {self._words[target]}", err=True)
                return 1
            self._progress([f"{each}: {self._words[each]}" for each in waits])
            self._sleep(min(_LOOK, left))

    def _look(self, target: str) -> None:
        try:
            found = self._client.call("GET", f"/fleet{_path(target)}")
        except ApiError as error:
            if error.reason:
                raise
            self._empty[target], self._words[target] = 0, str(error)  # it restarts, perhaps
            self._found.pop(target, None)
            return
        self._found[target] = found
        if found["drain"]:
            self._followed.add(target)
        elif target in self._followed:
            raise ApiError(f"{target} takes requests again: somebody has ended its drain")
        self._empty[target] = self._empty[target] + 1 if found["empty"] else 0
        self._words[target] = _in_words(found)
        if self._empty[target] == _LOOKS and self._tells:
            self._line("")
            typer.echo(f"{found['member']}: is empty: nothing is in flight in the fleet")

    def _progress(self, lines: Sequence[str]) -> None:
        if self._is_terminal:
            self._line("; ".join(lines))
        elif self._is_first:
            typer.echo("\n".join(lines))
        self._is_first = False

    def _line(self, text: str) -> None:
        """Replace the line of progress."""
        if self._is_terminal:
            typer.echo(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", nl=False)
