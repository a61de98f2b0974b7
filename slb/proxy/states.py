"""Every state of a client's connection and of an exchange, and every move between them. Pure: no I/O, no clock."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from slb.balance.health_state import IllegalMove


class ClientState(StrEnum):
    """Where a client's connection stands.

    reading: a request is waited for, or part of one has come. serving: an exchange is under way. tunnel: the
    transport is the tunnel's. handed_over: it is the applications'. lingering: the last answer is written; what the
    client still sends is thrown away, until it closes too. closing: the transport closes, with nothing more read.
    gone: it has ended.
    """

    READING = "reading"
    SERVING = "serving"
    TUNNEL = "tunnel"
    HANDED_OVER = "handed_over"
    LINGERING = "lingering"
    CLOSING = "closing"
    GONE = "gone"


class ClientEvent(StrEnum):
    REQUEST = "request"
    SERVED = "served"
    SWITCH = "switch"
    HAND_OVER = "hand_over"
    LINGER = "linger"
    CLOSE = "close"
    LOSE = "lose"


class ExchangeState(StrEnum):
    """Where an exchange stands.

    seeking: it waits for an upstream, a slot, a connection, or its next attempt. sent: an upstream's connection
    carries it, and no final reply has begun. replying: one has. tunnel: both connections are the tunnel's. ended:
    its slot is released, and it is counted.
    """

    SEEKING = "seeking"
    SENT = "sent"
    REPLYING = "replying"
    TUNNEL = "tunnel"
    ENDED = "ended"


class ExchangeEvent(StrEnum):
    SEND = "send"
    LEAVE = "leave"
    REPLY = "reply"
    SWITCH = "switch"
    END = "end"


State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class Moves(dict[Event, State]):
    """All moves out of one state: `state = TABLE[state][event]`. Any other event is a bug: it raises IllegalMove,
    and the state stays. Two look-ups and no call, for each request makes five moves."""

    def __init__(self, state: State, moves: Mapping[Event, State]) -> None:
        super().__init__(moves)
        self._state = state

    def __missing__(self, event: Event) -> State:
        raise IllegalMove(f"{event} cannot happen to what is {self._state}")


_CLIENT = {
    ClientState.READING: {
        ClientEvent.REQUEST: ClientState.SERVING,
        ClientEvent.HAND_OVER: ClientState.HANDED_OVER,
        ClientEvent.LINGER: ClientState.LINGERING,
        ClientEvent.CLOSE: ClientState.CLOSING,
        ClientEvent.LOSE: ClientState.GONE,
    },
    ClientState.SERVING: {
        ClientEvent.SERVED: ClientState.READING,
        ClientEvent.SWITCH: ClientState.TUNNEL,
        ClientEvent.CLOSE: ClientState.CLOSING,
        ClientEvent.LOSE: ClientState.GONE,
    },
    ClientState.TUNNEL: {
        ClientEvent.CLOSE: ClientState.CLOSING,
        ClientEvent.LOSE: ClientState.GONE,
    },
    ClientState.HANDED_OVER: {ClientEvent.LOSE: ClientState.GONE},
    ClientState.LINGERING: {ClientEvent.LOSE: ClientState.GONE},
    ClientState.CLOSING: {ClientEvent.LOSE: ClientState.GONE},
    ClientState.GONE: {},
}
_EXCHANGE = {
    ExchangeState.SEEKING: {
        ExchangeEvent.SEND: ExchangeState.SENT,
        ExchangeEvent.LEAVE: ExchangeState.SEEKING,
        ExchangeEvent.END: ExchangeState.ENDED,
    },
    ExchangeState.SENT: {
        ExchangeEvent.LEAVE: ExchangeState.SEEKING,
        ExchangeEvent.REPLY: ExchangeState.REPLYING,
        ExchangeEvent.SWITCH: ExchangeState.TUNNEL,
        ExchangeEvent.END: ExchangeState.ENDED,
    },
    ExchangeState.REPLYING: {ExchangeEvent.END: ExchangeState.ENDED},
    ExchangeState.TUNNEL: {ExchangeEvent.END: ExchangeState.ENDED},
    ExchangeState.ENDED: {},
}

CLIENT = {state: Moves(state, moves) for state, moves in _CLIENT.items()}
"""state -> event -> the state it leads to."""
EXCHANGE = {state: Moves(state, moves) for state, moves in _EXCHANGE.items()}
