"""What a call asks for, taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from slb.client.refusals import CallRefused
from slb.client.target import Target, Targets, parse_target
from slb.errors import InvalidName
from slb.names import normal_path
from tests.support.memory import kept_of

ORIGIN = "http://10.0.0.1:80"


@pytest.mark.parametrize(
    ("written", "normal", "sent"),
    [
        ("/", "/", "/"),
        ("/a/b", "/a/b", "/a/b"),
        ("/a/b/?x=/../y", "/a/b", "/a/b/?x=/../y"),
        ("/a?x=1#part", "/a", "/a?x=1"),
        ("/a/./b/../c", "/a/c", "/a/c"),
        ("//evil.example/a", "/evil.example/a", "/evil.example/a"),
        ("/%7Ea", "/~a", "/%7Ea"),
        ("/a%3a/b?x=%7e+y%20z", "/a%3A/b", "/a%3a/b?x=%7e+y%20z"),
        ("/a?x=y z&q=%zz", "/a", "/a?x=y%20z&q=%25zz"),
        ('/a"b', "/a%22b", "/a%22b"),
        ("/a//b/", "/a/b", "/a//b/"),
        ("/a//../b", "/b", "/b"),
        ("/a b", "/a%20b", "/a%20b"),
        ("/ä", "/%C3%A4", "/%C3%A4"),
        ("/...", "/...", "/..."),
    ],
)
def test_a_target_is_matched_in_normal_form_and_sent_as_written(written: str, normal: str, sent: str) -> None:
    target = parse_target(written)
    assert target.normal == normal
    url = target.at(ORIGIN)
    assert (url.host, url.port, url.raw_path_qs) == ("10.0.0.1", 80, sent)


@pytest.mark.parametrize(
    "written",
    ["", "a", "?x", "http://h/a", "//../..", "/..", "/a%2Fb", "/a%00", "/a\\b", "/%", "/a\nb", "/..;/a", "*"],
)
def test_what_servers_could_disagree_on_is_refused(written: str) -> None:
    with pytest.raises(CallRefused, match="bad_request"):
        parse_target(written)


@given(st.text(alphabet="/.ab%2ez~?#;-", max_size=12).map(lambda text: "/" + text))
def test_every_path_is_read_as_normal_path_reads_it(written: str) -> None:
    path = written.partition("#")[0].partition("?")[0]
    try:
        expected = normal_path(path, encoded_controls=True)
    except InvalidName:
        with pytest.raises(CallRefused):
            parse_target(written)
    else:
        assert parse_target(written).normal == expected


@pytest.mark.parametrize(
    ("written", "sent"),
    [("/p", "/"), ("/p/", "/"), ("/p?a=b", "/?a=b"), ("/p/x/", "/x/"), ("/p/../p/x", "/x"), ("/%70/x?y", "/x?y")],
)
def test_a_prefix_is_taken_away_whole(written: str, sent: str) -> None:
    assert str(parse_target(written).at(ORIGIN, "/p", strip=True)) == str(URL(ORIGIN + sent))


def test_targets_that_repeat_are_the_same_object_and_what_is_kept_is_bounded() -> None:
    targets = Targets()
    first = targets.get("/a")
    assert targets.get("/a") is first
    assert targets.get(URL("/a")) is first
    assert first.at(ORIGIN) is first.at(ORIGIN)
    for number in range(5000):
        targets.get(f"/{number}")
        first.at(f"http://10.0.0.1:{number + 1}")
        if number % 100 == 0:
            assert len(kept_of(targets, Target)) <= 2048
    assert len(first.urls) <= 8
    targets.get("/" + "a" * 1000)
    assert "/" + "a" * 1000 not in kept_of(targets, str)
