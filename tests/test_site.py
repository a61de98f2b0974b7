"""The documents as a site, and the configurations of others that stand in them."""

import asyncio
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.documents import ROOT, samples

NGINX, HAPROXY = (
    shutil.which("nginx", path="/usr/sbin:/usr/bin"),
    shutil.which("haproxy", path="/usr/sbin:/usr/bin"),
)


async def ended(*command: str) -> tuple[int | None, str]:
    """The exit code, and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()


async def test_the_documents_make_a_site_without_a_broken_link_or_an_address_outside(tmp_path: Path) -> None:
    site, trees = str(tmp_path / "site"), str(tmp_path / "trees")
    options = ("-b", "html", "-q", "-W", "--keep-going", "-d", trees)
    assert await ended(sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), site) == (0, "")
    assert faults_of(Path(site)) == []


def faults_of(site: Path) -> list[str]:
    """Documents without a page, and addresses outside that a page loads something from."""
    pages = sorted(site.rglob("*.html"))
    sources = [file.relative_to(ROOT / "docs").with_suffix(".html") for file in ROOT.glob("docs/**/*.md")]
    loaded = re.compile(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]*")
    missing = [str(file) for file in sources if site / file not in pages]
    return missing + [found for page in pages for found in loaded.findall(page.read_text())]


@pytest.mark.skipif(NGINX is None, reason="needs Debian's nginx")
@pytest.mark.parametrize("sample", samples("nginx"))
async def test_nginx_takes_the_configurations_of_nginx(sample: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid; error_log stderr;\nevents {{}}\nhttp {{ access_log off;\n{sample}}}\n")
    code, printed = await ended(str(NGINX), "-t", "-q", "-p", str(tmp_path), "-c", str(file))
    assert (code, printed) == (0, "")


@pytest.mark.skipif(HAPROXY is None, reason="needs Debian's haproxy")
@pytest.mark.parametrize("sample", samples("haproxy"))
async def test_haproxy_takes_the_configurations_of_haproxy(sample: str, tmp_path: Path) -> None:
    file = tmp_path / "haproxy.cfg"
    file.write_text(sample)
    code, printed = await ended(str(HAPROXY), "-c", "-q", "-f", str(file))
    assert (code, printed) == (0, "")


@pytest.mark.parametrize("sample", samples("yaml", "http:"))
def test_what_a_configuration_of_traefik_names_stands_in_it(sample: str) -> None:
    """Not asked of a real Traefik, which says of a wrong one no more than that it logs an error."""
    parts: dict[str, dict[str, Any]] = yaml.safe_load(sample)["http"]
    assert parts.keys() <= {"routers", "middlewares", "services"}
    for router in parts["routers"].values():
        assert router["service"] in parts["services"]
        assert set(router["middlewares"]) <= parts["middlewares"].keys()
