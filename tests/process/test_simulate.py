"""`slb simulate` with a small fleet."""

from pathlib import Path

import pytest

from slb.simulate.names import Name
from tests.process.commands import Commands

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", Name)
async def test_the_same_seed_prints_the_same_figures(slb: Commands, name: Name) -> None:
    first, again = [await slb.run("simulate", name, "--scale", "0.02", "--no-plot", timeout=60) for _ in range(2)]
    assert first.code == 0, first.err
    assert first.out == again.out
    assert "goal:" in first.out


@pytest.mark.parametrize(("name", "met"), [(Name.RING, True), (Name.FADE_IN, False)])
async def test_a_goal_that_is_missed_is_an_error_where_goals_are_checked(
    slb: Commands, name: Name, met: bool
) -> None:
    """So small a fleet is too coarse for the goal of fade-in."""
    plain, checked = [
        await slb.run("simulate", name, "--scale", "0.02", "--no-plot", *more, timeout=60)
        for more in ((), ("--check",))
    ]
    assert ("NO: " in plain.out) is not met
    assert (plain.code, checked.code) == (0, 0 if met else 1)
    assert (checked.out, checked.err) == (plain.out, "")


async def test_the_picture_is_written_where_it_is_asked_for(slb: Commands, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = await slb.run("simulate", "ring", "--scale", "0.05", "--out", str(tmp_path))
    assert result.code == 0, result.err
    picture = tmp_path / "simulate-ring.png"
    assert result.out.endswith(f"picture: {picture}\n")
    assert picture.read_bytes().startswith(PNG)


async def test_without_matplotlib_one_line_names_the_extra(slb: Commands, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'matplotlib' else found(name, package)\n"
    )
    result = await slb.run("simulate", "ring", "--scale", "0.05", env={"PYTHONPATH": str(tmp_path)})
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "slb: pictures need the extra 'simulate': pip install -e '.[simulate]' in the checkout, or add --no-plot\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("tides",), 2, "'tides' is not one of"),
        (("ring", "--scale", "0"), 2, "--scale': Input should be greater"),
        (("ring", "--out", "nowhere"), 1, "--out: nowhere is not a directory"),
    ],
)
async def test_what_cannot_be_simulated_is_refused_by_name(
    slb: Commands, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = await slb.run("simulate", *arguments)
    assert (result.code, result.out) == (code, "")
    assert words in result.err
    assert len(result.err.splitlines()) == 1
