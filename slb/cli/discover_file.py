"""`slb discover`: instances that write upstreams which others know of to the routes, and take no traffic."""

from pathlib import Path
from typing import Annotated

import typer

from slb.cli import options
from slb.cli.serving import serve_with


def follow_file(
    context: typer.Context,
    discovery_file_path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Upstreams by route, in TOML, or in JSON where it ends so.")
    ],
    api: Annotated[str | None, typer.Option(help="HOST:PORT for the API [127.0.0.1:8081].")] = None,
    redis_url: options.RedisOption = None,
    config: options.ConfigOption = None,
    data_dir: options.DataDirOption = None,
    name: Annotated[str | None, typer.Option(help="What this instance is called in /instances.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    end_with_stdin: options.EndWithStdin = False,
) -> int:
    """Follow a file of upstreams, and serve no traffic: `slb serve --roles discovery` with `[discovery.file]`."""
    return serve_with({**context.params, "roles": "discovery"}, config, end_with_stdin)
