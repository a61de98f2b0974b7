"""A command that has commands: its help has whole sentences for each, however narrow the terminal is."""

from typing import Any

from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Lists its commands with their first sentence. click cuts that to what has room on one line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Their types are click's, which typer keeps to itself."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, _first_sentence(each.help or "")) for name, each in found if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    sentence, stop, _ = " ".join(text.split()).partition(". ")
    return sentence + stop.strip()
