"""The page's own scripts: few, checked, and with no way for a text to become anything else."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from slb.dashboard import files

PAGE = Path(files.__file__).with_name("page")
SCRIPTS = sorted([*PAGE.glob("*.js"), *PAGE.glob("views/*.js")])
TYPESCRIPT = "typescript@5.9.3"
MOST_LINES, LONGEST = 1900, 160
"""All lines: blank ones, comments and what they say of types as well. What is sick stands in each view with its
reason and its button, and routes and upstreams have their last hour: that took the last 400."""
_DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|createContextualFragment"
    r"|DOMParser|srcdoc|\.cssText|setAttribute\(\"(style|on)|document\.cookie|indexedDB|javascript:"
)


def test_they_are_small_enough_to_read() -> None:
    assert sum(len(path.read_text().splitlines()) for path in SCRIPTS) <= MOST_LINES
    too_long = {path.name: n for path in SCRIPTS for n in map(len, path.read_text().splitlines()) if n > LONGEST}
    assert not too_long


def test_no_text_becomes_markup() -> None:
    found = {path.name: match[0] for path in SCRIPTS if (match := _DANGEROUS.search(path.read_text()))}
    assert not found


def test_the_look_is_kept_in_the_browser_and_the_token_in_the_tab_alone() -> None:
    kept = [path.name for path in SCRIPTS if "localStorage" in path.read_text()]
    assert kept == ["main.js"]
    assert re.findall(r"localStorage\.setItem\((.*?)\)", (PAGE / "main.js").read_text()) == ['"slb-theme", theme']
    kept = [path.name for path in SCRIPTS if "sessionStorage" in path.read_text()]
    assert kept == ["stream.js"]
    assert re.findall(r"sessionStorage\b.*?;", (PAGE / "stream.js").read_text()) == [
        'sessionStorage.removeItem("slb-token");',
        'sessionStorage.setItem("slb-token", token);',
        'sessionStorage.getItem("slb-token") ?? "";',
    ]


def test_the_page_names_no_other_address_and_has_nothing_inline() -> None:
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"https?:|<style|style=|\son\w+=|<script(?![^>]* src=)", page)
    for name in re.findall(r'(?:href|src)="/dashboard/([^"]+)"', page):
        assert (PAGE / name).is_file(), name
    assert not re.search(r"@import|url\(", (PAGE / "style.css").read_text())


def test_what_is_vendored_says_its_version_and_its_licence() -> None:
    first_line, _, _ = (PAGE / "vendor/uPlot.iife.min.js").read_text().partition("\n")
    version = re.search(r"v([0-9.]+)", first_line)
    assert version is not None
    assert version[1] in (PAGE / "vendor/README.md").read_text()
    assert "MIT License" in (PAGE / "vendor/uPlot.LICENSE").read_text()


def test_its_types_hold(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm")
    flags = ("--yes", "--prefer-offline", "--fetch-retries=0", f"--package={TYPESCRIPT}")
    compiler = [npm, "exec", *flags, "--", "tsc"]
    if subprocess.run([*compiler, "--version"], cwd=tmp_path, capture_output=True, timeout=120).returncode:
        pytest.skip(f"npm cannot install {TYPESCRIPT}")
    options = {"allowJs": True, "checkJs": True, "noEmit": True, "strict": True, "types": []}
    options |= {"target": "es2024", "lib": ["es2024", "dom", "dom.iterable"]}
    options |= {"module": "es2022", "moduleResolution": "bundler"}
    names = [str(PAGE.with_name("types.d.ts")), str(PAGE / "main.js")]
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": names}))
    checked = subprocess.run([*compiler, "-p", "."], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert not checked.returncode, checked.stdout
