"""`slb jobs`: jobs are submitted, shown, cancelled, and models paused."""

import base64
import secrets
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import orjson
import typer

from slb.cli.client import ApiClient
from slb.cli.console import show, show_json, show_pairs
from slb.cli.job_tables import jobs_table, pairs_of
from slb.cli.job_watch import until_ended
from slb.cli.options import DEFAULT_URL, CaOption, JsonOption, Misused, TokenOption, UrlOption, duration_option
from slb.quotas import checked_model
from slb.setting_values import SIGNING_PREFIX

_BYTES = 24

ModelArgument = Annotated[str, typer.Argument(help="The model, such as flux.")]
AnyModelArgument = Annotated[
    str | None, typer.Argument(help="The model, such as flux; without it all models.", show_default=False)
]
IdArgument = Annotated[str, typer.Argument(help="The job's id, such as order-4711.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="The job's model; without it all are looked through.")
]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", help="Where the page begins, as the one before says at its end.")
]


def secret() -> None:
    """Print a new secret for the setting jobs_callback_secrets."""
    typer.echo(SIGNING_PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode())


def submit(
    model: ModelArgument,
    payload: Annotated[
        str, typer.Argument(help="What the GPU is sent: JSON, @FILE with JSON, or - for that on stdin.")
    ],
    job_id: Annotated[
        str | None, typer.Option("--id", help="The job's own id: submitted again it is the same job [a new one].")
    ] = None,
    priority: Annotated[
        str | None, typer.Option(help="A class of the model; true is the heaviest [the lightest].")
    ] = None,
    callback_url: Annotated[str | None, typer.Option(help="Where the result is posted to.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="How long until it has failed, such as 10m, queueing included [never].")
    ] = None,
    max_retries: Annotated[int | None, typer.Option(help="Attempts after the first one [the model's].")] = None,
    metadata: Annotated[str | None, typer.Option(help="JSON that comes back with every answer.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until it has ended, and show it: exit code 1 unless it is completed.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """Submit a job; once this returns it is in Redis."""
    given = {
        "job_id": job_id,
        "priority": {"true": True, "false": False}.get(priority or "", priority),
        "callback_url": callback_url,
        "deadline": duration_option("deadline", deadline) if deadline is not None else None,
        "max_retries": max_retries,
        "metadata": _json("--metadata", metadata) if metadata is not None else None,
    }
    body = {"model": model, "payload": _payload(payload), **{k: v for k, v in given.items() if v is not None}}
    client = ApiClient(url, token, ca)
    answer = client.call("POST", "/queue/submit", body, is_submit=True)
    if wait:
        return _show_end(client, answer["job_id"], model, as_json)
    if as_json:
        show_json(answer)
    else:
        before = f", {answer['position']} of its class before it" if answer["position"] > 0 else ""
        known = "" if answer["is_new"] else "was there already, "
        typer.echo(f"{answer['job_id']}: {known}{answer['status']}{before}")
    return 0


def _show_end(client: ApiClient, id_: str, model: str, as_json: bool) -> int:
    state = until_ended(client, id_, model)
    _show(client.call("GET", job_path(id_, model=model)), as_json)
    return 0 if state == "completed" else 1


def _payload(text: str) -> Any:
    if text == "-":
        return _json("stdin", sys.stdin.buffer.read())
    if not text.startswith("@"):
        return _json("PAYLOAD", text)
    try:
        return _json(text[1:], Path(text[1:]).read_bytes())
    except OSError as error:
        raise Misused(f"{text[1:]} cannot be read: {error.strerror}") from None


def _json(what: str, text: str | bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Misused(f"{what} is no JSON: {error}") from None


def show_job(
    job_id: IdArgument,
    model: ModelOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Show one job, with its result once it has one."""
    _show(ApiClient(url, token, ca).call("GET", job_path(job_id, model=model)), as_json)


def _show(answer: dict[str, Any], as_json: bool) -> None:
    pairs = list(pairs_of(answer))
    if as_json:
        show_json(answer)
    else:
        show_pairs(pairs)


def list_jobs(
    model: AnyModelArgument = None,
    status: Annotated[str, typer.Option(help="Their status, or ended: completed, failed or cancelled.")] = "queued",
    cursor: CursorOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Show jobs by state, of a model the oldest first, 200 at a time."""
    path = "/queue/jobs" + query(model=model, status=status, cursor=cursor)
    nothing = f"No job of {model} is {status}." if model is not None else f"No job is {status}."
    show_page(ApiClient(url, token, ca).call("GET", path), as_json, nothing, with_model=model is None)


def show_page(answer: dict[str, Any], as_json: bool, nothing: str, with_model: bool = False) -> None:
    """One page of jobs; `nothing` where there is none. `with_model`: they are of several."""
    if as_json:
        show_json(answer)
        return
    if answer["jobs"]:
        show(jobs_table(answer["jobs"], with_model))
    else:
        typer.echo(nothing)
    if answer["cursor"] is not None:
        typer.echo(f"There may be more: --cursor {answer['cursor']}")


def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Jobs, by their ids.")],
    model: ModelOption = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Cancel jobs; the call of one that runs is dropped."""
    for each, answer in each_of(ApiClient(url, token, ca), job_ids, "DELETE", "/queue/jobs/{}", model):
        typer.echo(f"{each}: cancelled, it was {answer['was']}")


def pause(
    model: ModelArgument, url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None
) -> None:
    """Begin no job of a model any more; it takes jobs still, and what runs goes on."""
    _set_paused(ApiClient(url, token, ca), model, True)


def resume(
    model: ModelArgument, url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None
) -> None:
    """Begin the jobs of a model again."""
    _set_paused(ApiClient(url, token, ca), model, False)


def _set_paused(client: ApiClient, model: str, wanted: bool) -> None:
    path = f"/admin/model-configs/{quote(checked_model(model), safe='/')}"
    paused = client.call("PATCH", path, {"paused": wanted})["config"]["paused"]
    typer.echo(f"{model}: {'takes jobs, and begins none' if paused else 'begins jobs'}")


def each_of(
    client: ApiClient, ids: Iterable[str], method: str, path: str, model: str | None
) -> Iterator[tuple[str, Any]]:
    """Each id with the answer to `method path`; `path` has a `{}` for the id."""
    for each in ids:
        yield each, client.call(method, path.format(quote(each, safe="")) + query(model=model))


def job_path(id_: str, **given: str | None) -> str:
    """Where the API has a job."""
    return f"/queue/jobs/{quote(id_, safe='')}{query(**given)}"


def query(**given: str | None) -> str:
    """`?model=flux`, of what is not None; empty where all is."""
    found = {name: value for name, value in given.items() if value is not None}
    return f"?{urlencode(found)}" if found else ""
