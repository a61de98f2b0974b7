"""Every move of a client's connection and of an exchange, and every one that is not among them."""

from enum import StrEnum
from itertools import product

import pytest

from slb.balance.health_state import IllegalMove
from slb.proxy.states import CLIENT, EXCHANGE, ClientEvent, ClientState, ExchangeEvent, ExchangeState

CLIENT_MOVES = {
    ("reading", "request"): "serving",
    ("reading", "hand_over"): "handed_over",
    ("handed_over", "lose"): "gone",
    ("reading", "linger"): "lingering",
    ("reading", "close"): "closing",
    ("reading", "lose"): "gone",
    ("serving", "served"): "reading",
    ("serving", "switch"): "tunnel",
    ("serving", "close"): "closing",
    ("serving", "lose"): "gone",
    ("tunnel", "close"): "closing",
    ("tunnel", "lose"): "gone",
    ("lingering", "lose"): "gone",
    ("closing", "lose"): "gone",
}
EXCHANGE_MOVES = {
    ("seeking", "send"): "sent",
    ("seeking", "leave"): "seeking",
    ("seeking", "end"): "ended",
    ("sent", "leave"): "seeking",
    ("sent", "reply"): "replying",
    ("sent", "switch"): "tunnel",
    ("sent", "end"): "ended",
    ("replying", "end"): "ended",
    ("tunnel", "end"): "ended",
}


@pytest.mark.parametrize(("state", "event"), list(product(ClientState, ClientEvent)))
def test_every_event_of_a_connection_leads_where_it_should_or_nowhere(
    state: ClientState, event: ClientEvent
) -> None:
    expected = CLIENT_MOVES.get((state.value, event.value))
    if expected is None:
        with pytest.raises(IllegalMove, match=f"{event} .*{state}"):
            CLIENT[state][event]
    else:
        assert CLIENT[state][event].value == expected


@pytest.mark.parametrize(("state", "event"), list(product(ExchangeState, ExchangeEvent)))
def test_every_event_of_an_exchange_leads_where_it_should_or_nowhere(
    state: ExchangeState, event: ExchangeEvent
) -> None:
    expected = EXCHANGE_MOVES.get((state.value, event.value))
    if expected is None:
        with pytest.raises(IllegalMove, match=f"{event} .*{state}"):
            EXCHANGE[state][event]
    else:
        assert EXCHANGE[state][event].value == expected


@pytest.mark.parametrize(("first", "table"), [(ClientState.READING, CLIENT), (ExchangeState.SEEKING, EXCHANGE)])
def test_every_state_can_be_reached(first: StrEnum, table: dict[StrEnum, dict[StrEnum, StrEnum]]) -> None:
    reached, new = set[StrEnum](), {first}
    while new:
        reached |= new
        new = {after for state in new for after in table[state].values()} - reached
    assert reached == set(table)
