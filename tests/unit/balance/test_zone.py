"""How much stays in the zone. The three bugs that a trial of this elsewhere had are tests here."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slb.balance.zone import FALL, FLOOR, RISE, ZoneRamp
from slb.model import RouteSettings

DELAY, FADE_IN, CEILING, MARGIN, LEAST = 60.0, 300.0, 0.8, 0.35, 3
SETTINGS = RouteSettings.model_validate(
    {
        "zone_delay": f"{DELAY:g}s",
        "zone_fade_in": f"{FADE_IN:g}s",
        "zone_ceiling": CEILING,
        "zone_margin": MARGIN,
        "zone_min_upstreams": LEAST,
    }
)
END = DELAY + FADE_IN
FAST, SLOW = 0.010, 0.020


def ramp(**changes: Any) -> ZoneRamp:
    """Begun at 0."""
    made = ZoneRamp(SETTINGS.model_copy(update=changes))
    made.share(0.0, LEAST)
    return made


def watch(made: ZoneRamp, since: float, until: float, local: float | None, all_zones: float | None = FAST) -> float:
    """A look every 100 ms; the time after the last."""
    now = since
    while now < until:
        now += 0.1
        made.observe(local, all_zones, now)
    return now


def test_a_zone_that_had_too_few_upstreams_until_now_is_at_the_beginning_of_its_ramp() -> None:
    made = ZoneRamp(SETTINGS)
    assert made.share(0.0, LEAST - 1) == made.share(END, LEAST - 1) == 0.0
    assert made.share(END, LEAST) == 0.0
    assert made.share(END + DELAY, LEAST) == FLOOR
    assert made.share(2 * END, LEAST) == pytest.approx(CEILING)


def test_at_first_all_zones_are_used() -> None:
    made = ramp()
    assert made.share(DELAY - 0.001, LEAST) == 0.0
    assert made.share(DELAY, LEAST) == FLOOR


@pytest.mark.parametrize(("part", "share"), [(0.1, 0.003), (0.5, 0.177), (0.9, 0.768), (1.0, 1.0)])
def test_the_share_grows_on_the_curve_of_the_fade_in(part: float, share: float) -> None:
    assert ramp().share(DELAY + part * FADE_IN, LEAST) == pytest.approx(max(FLOOR, share * CEILING), abs=0.0005)


def test_it_stays_at_its_ceiling() -> None:
    assert ramp().share(END * 100, LEAST) == CEILING


def test_the_delay_begins_when_the_first_request_asks() -> None:
    made = ZoneRamp(SETTINGS)
    assert made.share(1000.0, LEAST) == 0.0
    assert made.share(1000.0 + DELAY - 1, LEAST) == 0.0
    assert made.share(1000.0 + END, LEAST) == CEILING


def test_a_zone_with_too_few_upstreams_gets_nothing_and_the_ramp_goes_on_meanwhile() -> None:
    made = ramp()
    assert made.share(END, LEAST - 1) == 0.0
    assert made.share(END + 1, LEAST) == CEILING


def test_a_slow_zone_is_braked_to_a_probe() -> None:
    made = ramp()
    now = watch(made, END, END + 30.0, SLOW)
    assert made.health == 0.0
    assert made.share(now, LEAST) == FLOOR


def test_within_the_margin_nothing_is_braked() -> None:
    made = ramp()
    watch(made, END, END + 600.0, FAST * (1 + MARGIN - 0.01))
    assert made.health == 1.0


def test_a_dip_of_half_a_second_takes_nothing_away() -> None:
    made = ramp()
    now = watch(made, END, END + 30.0, FAST)
    now = watch(made, now, now + 0.5, FAST * 2)
    watch(made, now, now + 1.0, FAST)
    assert made.health == 1.0


def test_a_dip_that_is_seen_after_a_minute_of_silence_only_takes_next_to_nothing_away() -> None:
    made = ramp()
    now = watch(made, END, END + 30.0, FAST)
    made.observe(SLOW, FAST, now + 60.0)
    watch(made, now + 60.0, now + 60.1, FAST)
    assert made.health >= 0.7


# -- the three bugs


def test_the_ramp_does_not_flap_when_latency_goes_around_its_margin() -> None:
    """Once braked, it stays so until the zone is well within the margin; and then it grows again slowly."""
    made = ramp()
    now = watch(made, END, END + 30.0, SLOW)
    shares = []
    for turn in range(60):
        now = watch(made, now, now + 1.0, FAST * (1 + MARGIN + (0.05 if turn % 2 else -0.05)))
        shares.append(made.share(now, LEAST))
    assert set(shares) == {FLOOR}


def test_the_brake_ends_by_itself() -> None:
    made = ramp()
    now = watch(made, END, END + 30.0, SLOW)
    now = watch(made, now, now + 2 * RISE, FAST)
    assert made.share(now, LEAST) == CEILING


def test_the_brake_ends_for_a_zone_that_nothing_is_known_of_any_more() -> None:
    made = ramp()
    now = watch(made, END, END + 30.0, SLOW)
    now = watch(made, now, now + 2 * RISE, None)
    assert made.share(now, LEAST) == CEILING


def test_a_ramp_that_has_ended_is_not_begun_again_by_upstreams_that_come_and_go() -> None:
    made = ramp()
    assert made.share(END, LEAST) == CEILING
    for count in (0, 1, LEAST, 50, 0, LEAST):
        made.share(END + 1, count)
    assert made.share(END + 2, 50) == CEILING


def test_nor_by_the_brake() -> None:
    made = ramp()
    now = watch(made, DELAY, END, SLOW)
    now = watch(made, now, now + 2 * RISE, FAST)
    assert made.share(now, LEAST) == CEILING


# -- the rest


def test_health_falls_fast_and_rises_slowly() -> None:
    made = ramp()
    made.observe(FAST, FAST, END)
    falling = watch(made, END, END + 20.0, SLOW) - END
    assert made.health == 0.0
    assert falling > FALL
    now = END + falling
    while made.health == 0.0:
        now = watch(made, now, now + 0.1, FAST)
    watch(made, now, now + RISE / 2, FAST)
    assert 0.4 < made.health < 0.7


@given(
    looks=st.lists(
        st.tuples(
            st.floats(0, 100),
            st.one_of(st.none(), st.floats(0, 10)),
            st.one_of(st.none(), st.floats(0, 10)),
            st.integers(0, 5),
        ),
        max_size=30,
    )
)
def test_a_share_is_nothing_or_between_the_floor_and_the_ceiling(
    looks: list[tuple[float, float | None, float | None, int]],
) -> None:
    made, now = ramp(), 0.0
    for pause, local, all_zones, count in looks:
        now += pause
        made.observe(local, all_zones, now)
        share = made.share(now, count)
        assert share == 0.0 or FLOOR <= share <= CEILING
        assert 0.0 <= made.health <= 1.0


def test_a_ceiling_below_the_floor_holds() -> None:
    assert ramp(zone_ceiling=0.0).share(END, LEAST) == 0.0
