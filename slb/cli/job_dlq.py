"""`slb jobs dlq`: the jobs that were given up, which stay until they begin again or are deleted."""

from typing import Annotated

import typer

from slb.cli.client import ApiClient
from slb.cli.jobs import AnyModelArgument, CursorOption, ModelOption, each_of, query, show_page
from slb.cli.options import DEFAULT_URL, CaOption, JsonOption, Misused, TokenOption, UrlOption

ErrorOption = Annotated[
    str | None, typer.Option("--error", help="Only jobs whose error has this text in it, in any case.")
]


def list_dead(
    model: AnyModelArgument = None,
    error: ErrorOption = None,
    cursor: CursorOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Show dead jobs, of a model the oldest first, 200 at a time."""
    path = "/admin/dlq" + query(model=model, error=error, cursor=cursor)
    nothing = f"No such job of {model} is dead." if model is not None else "No such job is dead."
    show_page(ApiClient(url, token, ca).call("GET", path), as_json, nothing, with_model=model is None)


def retry(
    job_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Dead jobs, by their ids.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All dead jobs of --model, or of every model.")] = False,
    model: ModelOption = None,
    error: ErrorOption = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Let dead jobs begin again, with all their attempts."""
    if every == bool(job_ids):
        raise Misused("what is to begin again is named by ids, or by --all")
    if error is not None and not every:
        raise Misused("--error goes with --all")
    for each, answer in each_of(ApiClient(url, token, ca), job_ids or (), "POST", "/admin/dlq/{}/retry", model):
        typer.echo(f"{each}: {'begins again' if answer['retried'] else 'is no dead job'}")
    if every:
        answer = ApiClient(url, token, ca).call("POST", "/admin/dlq/retry-all" + query(model=model, error=error))
        typer.echo(f"{model or 'all models'}: {answer['retried']} begin again")


def delete(
    job_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Dead jobs, by their ids.")],
    model: ModelOption = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Forget dead jobs."""
    for _, answer in each_of(ApiClient(url, token, ca), job_ids, "DELETE", "/admin/dlq/{}", model):
        typer.echo(f"{answer['job_id']}: deleted")
