"""`slb events`: what has changed in the fleet, and with --follow what changes from now on."""

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
import typer

from slb.cli.client import ApiClient, ApiError
from slb.cli.options import DEFAULT_URL, CaOption, TokenOption, UrlOption, duration_option
from slb.cli.status import ticks, until_stopped
from slb.errors import OVERLOADED, REDIS_DOWN

_PASSING = {each.name for each in (REDIS_DOWN, OVERLOADED)}
_MOST = 200
_FIRST = 20

_WORDS = {
    "lease_ended": "was taken out, as its lease ended:",
    "attributes_changed": "has other attributes:",
    "settings_changed": "has other settings:",
    "route_removed": "was removed",
    "check_failed": "is down by its check",
    "check_passed": "is up by its check",
    "let_back": "is tried again:",
    "stuck": "is stuck:",
    "stuck_ended": "is stuck no more:",
    "isolated": "fails at this instance alone:",
    "isolation_ended": "does not fail any more:",
    "check_disputed": "fails its check here, and passes it elsewhere:",
    "flapping": "flaps by its check:",
    "panic_began": "panics:",
    "panic_ended": "panics no more:",
    "reload_refused": "refused its new settings",
    "redis_lost": "does not answer",
    "redis_back": "answers again",
    "redis_replaced": "is another one:",
    "job_retried": "begins again",
    "job_removed": "was given up, and is removed",
    "model_paused": "is paused",
    "model_resumed": "goes on",
    "discovery_taken_over": "is written by this instance from now on:",
}
"""What happened to the subject, where the name of the change alone does not say it."""


def events(
    since: Annotated[
        str | None, typer.Option(help="Begin so long ago, such as 1h; else with the last 20.", show_default=False)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", "-f", help="Go on with what changes, until Ctrl-C; or end.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each entry as it is, one a line.")] = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """What has changed in the fleet, in order of time: who registered, ejected, drained, reloaded, failed over."""
    client = ApiClient(url, token, ca)
    first = {"most": str(_FIRST)}
    if since is not None:
        first = {"since": str(max(0, int((time.time() - duration_option("since", since)) * 1000)))}
    with until_stopped():
        for entries in _rounds(client, first, follow):
            for entry in sorted(entries, key=lambda entry: float(entry["time"])):
                typer.echo(orjson.dumps(entry) if as_json else line_of(entry))
            sys.stdout.flush()


def _rounds(client: ApiClient, first: dict[str, str], follow: bool) -> Iterator[list[Any]]:
    """What was there, then what each second brings, in order of the log: an instance writes what it has noted while
    Redis was away behind what others wrote meanwhile. Raises ApiError where the first call fails, and later where
    it is refused for good."""
    asked = first
    has_begun = False
    for _ in ticks():
        entries: list[Any] = []
        try:
            while found := client.call("GET", f"/fleet/changes?{urlencode(asked)}")["changes"]:
                entries += found
                asked = {"since": found[-1]["id"]}
                if len(found) < _MOST:
                    break
            has_begun = True
        except ApiError as error:
            if not has_begun or (error.reason and error.reason not in _PASSING):
                raise
            typer.echo(f"slb: {error}; asking again", err=True)
        yield entries
        if not follow:
            return


def line_of(entry: Any) -> str:
    """`12:00:00  slb-1  10.0.0.1:80 ejected: it refuses connections (ops)`, of one line whatever stands in it."""
    words = _WORDS.get(entry["what"], entry["what"].replace("_", " "))
    who = f" (by {entry['by']})" if entry["by"] else ""
    detail = f" {entry['detail']}" if entry["detail"] else ""
    at = datetime.fromtimestamp(entry["time"]).astimezone()
    return printable(f"{at:%Y-%m-%d %H:%M:%S}  {entry['name']}  {entry['subject']} {words}{detail}{who}")


def printable(text: str) -> str:
    """Names and errors come from strangers: nothing in them may move the cursor or begin a line."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
