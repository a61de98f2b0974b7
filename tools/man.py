"""Write the man page slb(1) from the commands.

    python -m tools.man    # what `make man` runs

In mdoc(7), which groff and mandoc read. What a command or an option means is what `--help` says.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from slb.cli.entry import app
from slb.config import Settings
from tools.reference import listed

PAGE = Path(__file__).resolve().parent.parent / "deploy" / "man" / "slb.1"
_DATE = "November 25, 2026"
_VARIABLES = {
    "SLB_URL": "The API that client commands speak to: http://127.0.0.1:8081 where it is not set.",
    "SLB_TOKEN": "The token that client commands show there.",
    "SLB_API_TOKEN": "The token that slb serve asks for, with all rights.",
    "SLB_REDIS_URL": "The Redis or Valkey that instances share.",
}
_FILES = {
    "/etc/slb/slb.toml": "Settings, where the unit of systemd starts slb; elsewhere the file that --config names.",
    "~/.local/share/slb": "The last table and the embedded Valkey, unless data_dir says otherwise.",
}
_STATUS = {
    "0": "Done.",
    "1": "It failed: one line on standard error says why.",
    "2": "The command line is wrong.",
}


def written() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    return "\n".join([*_head(root), *_commands(root), *_tail()]) + "\n"


def _head(root: Any) -> Iterator[str]:
    yield '.\\" Made by `make man` from the commands.'
    yield from (f".Dd {_DATE}", ".Dt SLB 1", ".Os", ".Sh NAME", ".Nm slb")
    yield ".Nd load balancer for slow, expensive upstreams behind several proxies"
    yield from (".Sh SYNOPSIS", ".Nm", ".Ar command", ".Op Ar options", ".Nm", ".Ar command", ".Fl \\-help")
    yield from (".Sh DESCRIPTION", *_text(root.help or ""))
    yield from (
        ".Pp",
        *_text("Every setting of `slb serve` may stand in a TOML file, as a variable, or as a flag."),
    )


def _commands(root: Any) -> Iterator[str]:
    yield ".Sh COMMANDS"
    for name, command in listed(root, "slb"):
        yield f".Ss {_escaped(name)}"
        yield from _usage(name, command)
        for part in (command.help or "").split("\n\n"):
            yield from (".Pp", *_text(part))
        yield from _options(command)


def _usage(name: str, command: Any) -> Iterator[str]:
    yield f".Nm {_escaped(name)}"
    for each in _shown(command, "argument"):
        name = f"{each.metavar or each.name.upper()}{' ...' if each.nargs == -1 else ''}"
        yield f".Ar {_escaped(name)}" if each.required else f".Op Ar {_escaped(name)}"
    if _shown(command, "option"):
        yield ".Op Ar options"


def _options(command: Any) -> Iterator[str]:
    options = [each for each in _shown(command, "option") if each.opts != ["--help"]]
    if not options:
        return
    yield ".Bl -tag -width Ds"
    for each in options:
        value = "" if each.is_flag else f" Ar {_escaped(each.metavar or each.name.upper())}"
        yield ".It " + " , ".join(f"Fl {_escaped(opt[1:])}{value}" for opt in each.opts)
        yield from _text(each.help or "")
    yield ".El"


def _shown(command: Any, kind: str) -> list[Any]:
    return [each for each in command.params if each.param_type_name == kind and not getattr(each, "hidden", False)]


def _tail() -> Iterator[str]:
    yield from (".Sh ENVIRONMENT", *_tagged("Ev", _VARIABLES.items()))
    text = f"Each of the {len(Settings.model_fields)} settings is a variable: SLB_ and its name in capitals."
    yield from (".Pp", *_text(text), *_text("With _FILE behind it, the variable names a file that has the value."))
    yield from (".Sh FILES", *_tagged("Pa", _FILES.items()))
    yield from (".Sh EXIT STATUS", *_tagged("Cm", _STATUS.items()))
    yield from (".Sh SEE ALSO", ".Xr valkey-server 1 ,", ".Xr systemd.service 5")


def _tagged(macro: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield ".Bl -tag -width Ds"
    for name, text in rows:
        yield f".It {macro} {_escaped(name)}"
        yield from _text(text)
    yield ".El"


def _text(text: str) -> Iterator[str]:
    """Each sentence on a line of its own, as mdoc wants it."""
    for line in re.split(r"(?<=[.!?:]) +(?=[A-Z])", " ".join(text.replace("`", "").split())):
        if line:
            yield ("\\&" if line[0] in ".'" else "") + _escaped(line)


def _escaped(text: str) -> str:
    """Without what troff would take for its own; a hyphen stays one that can be copied."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(written())


if __name__ == "__main__":
    main()
