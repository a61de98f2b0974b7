"""The command `slb`: its subcommands, and one line for a failure. Commands import what they need when they run, so
that a client command does not wait for a server's libraries."""

import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from slb.cli import (
    alerts,
    applying,
    discover_file,
    discover_kubernetes,
    draining,
    events,
    explain,
    job_dlq,
    job_watch,
    jobs,
    local,
    quota,
    routes,
    serving,
    status,
    token,
    top,
    upstreams,
)
from slb.cli.options import Misused
from slb.errors import SlbError

_USAGE_ERROR = 2
_INTERRUPTED = 130


class CommandGroup(TyperGroup):
    """A command that has commands. Its help shows the whole first sentence of each, which click would cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Their types are click's, which typer keeps to itself."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, _first_sentence(each.help or "")) for name, each in found if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    sentence, stop, _ = " ".join(text.split()).partition(". ")
    return sentence + stop.strip()


app = typer.Typer(
    name="slb",
    help="A distributed reverse-proxy load balancer: stateless instances, routes in Redis, traffic that goes on.",
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from slb.build import build

        typer.echo(f"slb {build()}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command in (
    *(serving.serve, serving.ext_proc, serving.dns, serving.upstream, serving.demo),
    *(routes.register, routes.deregister, draining.drain, draining.undrain, routes.routes),
    *(status.status, top.top, upstreams.upstreams, status.instances, local.check_config, local.reset),
    *(alerts.alerts, events.events, explain.explain),
    *(applying.export, applying.diff, applying.apply),
):
    app.command()(command)
app.command(hidden=True)(serving.worker)

route = typer.Typer(cls=CommandGroup, help="Change a route's settings, or remove it.")
route.command("set")(routes.set_settings)
route.command("unset")(routes.unset_settings)
route.command("delete")(routes.delete)
app.add_typer(route, name="route")

router = typer.Typer(
    cls=CommandGroup,
    help="Ask who may call which model now, and set what models may take. With a flag of its own it is a server,\n"
    "`slb serve --roles quota` in short: it decides.",
    invoke_without_command=True,
)
router.callback()(quota.serve)
router.command("advice")(quota.advice)
router.command("watch")(quota.watch)
app.add_typer(router, name="quota")

models = typer.Typer(
    cls=CommandGroup, help="Show the models and what they take, or change it.", invoke_without_command=True
)
models.callback()(quota.show_models)
models.command("set")(quota.set_model)
models.command("delete")(quota.delete_model)
router.add_typer(models, name="models")

job = typer.Typer(
    cls=CommandGroup,
    help="Submit jobs, follow and cancel them, and pause models. With a flag of its own it is a server,\n"
    "`slb serve --roles jobs` in short: it dispatches them.",
    invoke_without_command=True,
)
job.callback()(serving.jobs)
job.command("submit")(jobs.submit)
job.command("show")(jobs.show_job)
job.command("list")(jobs.list_jobs)
job.command("watch")(job_watch.watch)
job.command("cancel")(jobs.cancel)
job.command("pause")(jobs.pause)
job.command("resume")(jobs.resume)
job.command("secret")(jobs.secret)
app.add_typer(job, name="jobs")

dead = typer.Typer(cls=CommandGroup, help="Show dead jobs, let them begin again, or delete them.")
dead.command("list")(job_dlq.list_dead)
dead.command("retry")(job_dlq.retry)
dead.command("delete")(job_dlq.delete)
job.add_typer(dead, name="dlq")


tokens = typer.Typer(cls=CommandGroup, help="Make tokens for the API.")
tokens.command("make")(token.make)
app.add_typer(tokens, name="token")

finding = typer.Typer(cls=CommandGroup, help="Write upstreams that others know of to the routes; no traffic.")
finding.command("file")(discover_file.follow_file)
finding.command("kubernetes")(discover_kubernetes.follow_services)
app.add_typer(finding, name="discover")


def main() -> NoReturn:
    """Run what was typed. A failure is one line on stderr and exit code 1, or 2 where the command line is wrong."""
    closed = sys.stdout is None
    if closed:
        _silence()
    try:
        code = app(prog_name="slb", standalone_mode=False)  # also where it is run as a module
        sys.stdout.flush()
    except typer.TyperException as error:
        _fail(error.format_message(), _USAGE_ERROR)
    except Misused as error:
        _fail(str(error), _USAGE_ERROR)
    except SlbError as error:
        _fail(str(error), 1)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:  # `slb routes | head`: the reader has closed the pipe
        _silence()
        sys.exit(1)
    except OSError as error:
        if not _is_of_stdout(error):
            raise
        _silence()
        _fail(f"stdout cannot be written: {error.strerror}", 1)
    if closed and code is None:  # `slb serve` goes on without stdout; other commands have failed
        _fail("stdout cannot be written: it is closed", 1)
    sys.exit(code)


def _is_of_stdout(error: OSError) -> bool:
    try:
        print(flush=True)
    except OSError as again:
        return again.errno == error.errno
    return False


def _silence() -> None:
    """Let whatever is still written to stdout go nowhere; were it closed, the next socket would be stdout."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = os.fdopen(nowhere, "w")
    else:
        os.dup2(nowhere, sys.stdout.fileno())


def _fail(message: str, code: int) -> NoReturn:
    print(f"slb: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
