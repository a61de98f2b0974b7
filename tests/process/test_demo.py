"""`slb demo`, whole."""

from tests.process.commands import Commands


async def test_the_demo_tells_its_story_and_all_of_it_is_true(slb: Commands) -> None:
    result = await slb.run("demo", timeout=100.0)
    assert result.code == 0, result.out + result.err
    assert "NO" not in result.out
    assert "claims were true" in result.out
