"""Which commit a build names, and where it is found."""

import subprocess
from pathlib import Path

import pytest

from slb import __version__
from slb.build import FILE, build, checked_out, commit_of, named

_WHO = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a commit, and a package `slb` in it."""
    (tmp_path / "slb").mkdir()
    for words in (("init", "--quiet"), (*_WHO, "commit", "--quiet", "--allow-empty", "--message", "x")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def test_a_commit_is_the_local_part_of_the_version() -> None:
    assert named("0.1.0", "0af7651916cd") == "0.1.0+g0af7651916cd"


@pytest.mark.parametrize("commit", ["", "fatal: no repository", "0af76", "0af7651916cd\n0af7651916cd", "../../x"])
def test_what_is_no_commit_leaves_the_version_alone(commit: str) -> None:
    assert named("0.1.0", commit) == "0.1.0"


def test_a_checkout_is_asked_for_its_commit_whatever_repository_the_environment_names(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert len(commit_of(checkout / "slb")) == 12
    assert named("1", commit_of(checkout / "slb")).startswith("1+g")


def test_a_wheel_says_what_is_in_its_file_and_a_checkout_what_is_checked_out(
    checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "wheel" / "slb").mkdir(parents=True)
    for package in (tmp_path / "wheel" / "slb", checkout / "slb"):
        (package / FILE).write_text("abcdef012345\n")
    assert commit_of(tmp_path / "wheel" / "slb") == "abcdef012345"
    assert commit_of(checkout / "slb") == checked_out(checkout) != "abcdef012345"


def test_a_repository_that_an_environment_happens_to_be_in_is_not_asked(checkout: Path) -> None:
    package = checkout / "lib" / "site-packages" / "slb"
    package.mkdir(parents=True)
    assert commit_of(package) == ""


def test_without_git_the_version_is_plain(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert checked_out(checkout) == ""


def test_the_version_of_this_build_begins_with_the_one_of_the_package() -> None:
    assert build() == named(__version__, commit_of(Path(__file__).parents[2] / "slb"))
