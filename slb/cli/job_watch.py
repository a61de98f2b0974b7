"""`slb jobs watch`: what becomes of one job, or of all of a model, as it happens."""

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
import typer

from slb.cli.client import ApiClient, ApiError
from slb.cli.job_tables import change_of
from slb.cli.options import DEFAULT_URL, CaOption, Misused, TokenOption, UrlOption
from slb.cli.status import until_stopped
from slb.errors import NOT_READY, OVERLOADED, REDIS_DOWN, SCRIPT_FAILED
from slb.job import ENDED

_PAUSE = 1.0
"""Seconds before an instance is asked again that has ended the stream."""
_PASSING = {each.name for each in (REDIS_DOWN, NOT_READY, OVERLOADED, SCRIPT_FAILED)}
"""Reasons for which an instance refuses now, and may not a moment later."""


def watch(
    job_id: Annotated[str | None, typer.Argument(help="A job's id.", show_default=False)] = None,
    model: Annotated[
        str | None, typer.Option(help="All jobs of this model; with an id, where that job is.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event's data as it is, one a line.")] = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """What becomes of one job until it has ended, or of all jobs of a model until Ctrl-C."""
    client = ApiClient(url, token, ca)
    if job_id is not None:
        return 0 if until_ended(client, job_id, model, as_json) == "completed" else 1
    if model is None:
        raise Misused("what is watched is a job's id, or --model")
    with until_stopped():
        for name, job in _events(client, {"model": model}):
            _print(name, job, as_json)
    return 0


def until_ended(client: ApiClient, id_: str, model: str | None, as_json: bool | None = None) -> str:
    """The state in which a job has ended; each before it is printed, unless `as_json` is None. Raises ApiError."""
    asked = {"job_id": id_, **({"model": model} if model is not None else {})}
    for name, job in _events(client, asked):
        if as_json is not None:
            _print(name, job, as_json)
        if job["status"] in ENDED:
            return str(job["status"])
    raise AssertionError("events go on until one is the last")


def _events(client: ApiClient, asked: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Also where the instance ends meanwhile and comes back. Raises ApiError where the first call fails, and later
    where it is refused for good."""
    path, has_begun, last = f"/queue/events?{urlencode(asked)}", False, None
    while True:
        try:
            for event in client.events(path):
                has_begun = True
                if event != last:  # where a stream begins it has what the one before ended with
                    yield event
                last = event
            error = "the stream of events has ended"
        except ApiError as failure:
            if not has_begun or (failure.reason and failure.reason not in _PASSING):
                raise
            error = str(failure)
        typer.echo(f"slb: {error}; asking again", err=True)
        time.sleep(_PAUSE)


def _print(name: str, job: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(orjson.dumps(job))
    else:
        change = change_of(job) if name != "missed" else "there may have been changes that were missed"
        typer.echo(f"{datetime.now().astimezone():%H:%M:%S}  {job.get('job_id', job['model'])}  {change}")
    sys.stdout.flush()
