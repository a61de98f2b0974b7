"""The load cases. A new one is an entry here and a file in `bench/lua/`."""

from dataclasses import dataclass
from pathlib import Path

LUA = Path(__file__).parent / "lua"


@dataclass(frozen=True)
class Case:
    """One kind of load: what is asked for, and the wrk script that asks for it."""

    name: str
    title: str
    path: str

    def script(self) -> str:
        """The text of the wrk script: the case's own part, then the report that `bench.load` reads."""
        return (LUA / f"{self.name}.lua").read_text() + (LUA / "report.lua").read_text()


CASES = (
    Case("repeat", "small GET, every head the same", "/v1/models"),
    Case("distinct", "small GET, every head different (a traceparent in each)", "/v1/models"),
    Case("post", "POST of 2 KiB JSON, lengths vary", "/upload"),
    Case("download", "1 MiB replies", "/download"),
    Case("upload", "1 MiB requests", "/upload"),
)
