"""How the pages of this folder become a site, with no address outside itself: `make docs`, in build/docs."""

import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]

project = _PROJECT["name"]
release = _PROJECT["version"]
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 4  # as hosts of git repositories make them
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]  # there is no lexer for an ACL of Redis, nor for HAProxy
html_theme = "furo"
html_title = f"slb {release}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
