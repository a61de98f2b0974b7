"""Whose turn it is while a body is on its way; what is written, and what is not."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from slb.proxy.upload import Upload
from slb.upstreams.body import CHUNKED

MOST_HELD = 64 << 10
_NO_SOCKET = SimpleNamespace(get_extra_info=lambda name: None)


class Scene:
    """One upload with all that it calls; `called` has what it called, in order."""

    def __init__(self, length: int, payload: bytes = b"", ended: bool = False, connected: bool = True) -> None:
        self.called: list[str] = []
        self.posted: list[bytes] = []
        self.exchange = SimpleNamespace(
            bytes_in=0,
            status=0,
            body_is_sent=lambda: self.called.append("body_is_sent"),
            client=self._recorder("hold_upload", "upload_may_go_on"),
            handle=self._recorder("goes_on", "waits"),
            connection=SimpleNamespace(transport=_NO_SOCKET) if connected else None,
            request=SimpleNamespace(
                head=SimpleNamespace(length=length),
                route=SimpleNamespace(settings=SimpleNamespace(first_byte_timeout=3.0)),
            ),
        )
        wheel = SimpleNamespace(now=lambda: 10.0, arm=lambda connection, due: self.called.append(f"due {due:g}"))
        outbox = SimpleNamespace(post=lambda transport, data: self.posted.append(data))
        self.upload = Upload(cast("Any", self.exchange), cast("Any", wheel), cast("Any", outbox), payload, ended)

    def _recorder(self, *names: str) -> SimpleNamespace:
        return SimpleNamespace(**{name: lambda name=name: self.called.append(name) for name in names})

    def calls(self) -> list[str]:
        """What it has called since this was read."""
        called, self.called = self.called, []
        return called


def test_the_turn_is_the_upstreams_once_it_has_all_and_the_clients_before() -> None:
    scene = Scene(length=4)
    scene.upload.start()
    assert scene.calls() == ["upload_may_go_on", "waits"]
    scene.upload.arrives(b"ab", False)
    assert scene.calls() == ["due 13"]
    scene.upload.arrives(b"cd", True)
    assert scene.calls() == ["due 13", "goes_on", "body_is_sent"]


def test_while_the_upstream_takes_no_more_of_a_body_it_is_its_turn() -> None:
    scene = Scene(length=9)
    scene.upload.start()
    scene.calls()
    scene.upload.is_held_back(True)
    assert scene.calls() == ["hold_upload", "goes_on"]
    scene.upload.is_held_back(False)
    assert scene.calls() == ["upload_may_go_on", "waits"]


def test_once_all_of_the_body_has_come_its_buffer_passes_the_turn_to_no_other() -> None:
    scene = Scene(length=2, payload=b"ab", ended=True)
    scene.upload.start()
    assert scene.calls() == ["upload_may_go_on", "goes_on"]
    scene.upload.is_held_back(True)
    scene.upload.is_held_back(False)
    assert scene.calls() == ["hold_upload", "upload_may_go_on"]


def test_after_an_early_answer_the_turn_is_nobodys() -> None:
    scene = Scene(length=4)
    scene.upload.start()
    scene.exchange.status = 200
    scene.calls()
    scene.upload.is_held_back(True)
    scene.upload.is_held_back(False)
    scene.upload.arrives(b"abcd", True)
    assert scene.calls() == ["hold_upload", "upload_may_go_on", "due 13", "body_is_sent"]


def test_what_brings_no_payload_writes_nothing_and_moves_no_deadline() -> None:
    """Half the line of a chunk's size."""
    scene = Scene(length=CHUNKED)
    scene.upload.start()
    scene.calls()
    scene.upload.arrives(b"", False)
    assert (scene.calls(), scene.posted) == ([], [])
    scene.upload.arrives(b"", True)
    assert (scene.calls(), scene.posted) == (["due 13", "goes_on", "body_is_sent"], [b"0\r\n\r\n"])


@pytest.mark.parametrize(
    ("sizes", "held"), [([MOST_HELD], True), ([MOST_HELD, 1], False), ([MOST_HELD, 1, 1], False)]
)
def test_what_was_sent_is_held_until_it_is_too_much_and_then_for_good(sizes: list[int], held: bool) -> None:
    scene = Scene(length=10 * MOST_HELD)
    scene.upload.start()
    for size in sizes:
        scene.upload.arrives(bytes(size), False)
    assert (scene.upload.held is not None) == held


@pytest.mark.parametrize(("size", "called"), [(MOST_HELD, []), (MOST_HELD + 1, ["hold_upload"])])
def test_without_a_connection_a_client_may_send_what_is_held_and_no_more(size: int, called: list[str]) -> None:
    scene = Scene(length=10 * MOST_HELD, connected=False)
    scene.upload.arrives(bytes(size), False)
    assert scene.calls() == called
    sent = scene.upload.start()
    assert len(sent) == size
    assert (scene.upload.held is not None) == (size <= MOST_HELD)
