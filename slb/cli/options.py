"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="SLB_CONFIG", help="A TOML file with settings.", show_default=False),
]
RedisOption = Annotated[
    str | None, typer.Option("--redis", help="URL of Redis or Valkey [an embedded Valkey].", show_default=False)
]
EndWithStdin = Annotated[
    bool, typer.Option("--end-with-stdin", hidden=True, help="End, as by SIGTERM, when stdin does.")
]
NoRevive = Annotated[
    bool, typer.Option("--no-revive", hidden=True, help="Leave an embedded Valkey dead that was killed.")
]
