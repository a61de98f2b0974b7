"""Application servers that refuse an upload by its head alone, each as its users would run it."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

APPLICATIONS = Path(__file__).parent / "applications"


@dataclass(frozen=True)
class Server:
    """`command`: what to run for a port. `install`: what to do where `is_there` says no."""

    name: str
    command: Callable[[int], list[str]]
    install: str = "make .venv/installed-bench"
    is_there: Callable[[], bool] = lambda: True


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _script(name: str) -> str:
    return str(APPLICATIONS / name)


SERVERS = (
    Server("raw socket", lambda port: [sys.executable, _script("raw.py"), str(port)]),
    Server("hypercorn", lambda port: _python("hypercorn", "--bind", f"127.0.0.1:{port}", "refusing_asgi:app")),
    Server("tornado", lambda port: [sys.executable, _script("refusing_tornado.py"), str(port)]),
    Server("gunicorn", lambda port: _python("gunicorn", "--bind", f"127.0.0.1:{port}", "refusing_wsgi:app")),
    Server(
        "node",
        lambda port: ["node", _script("refusing.js"), str(port)],
        "apt-get install nodejs",
        lambda: shutil.which("node") is not None,
    ),
)
