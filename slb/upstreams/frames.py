"""Events of a stream in which an inference engine tells that it has failed, once its answer has begun with a
200."""

import re

_NO_ERROR = rb'null|false|0|""|\{ ?+\}|\[ ?+\]'
_BEGINS_LIKE_IT = rb'(?:nu?+l?+|fa?+l?+s?+|"|[{\[] ?+)?+\Z'
_ERROR = re.compile(
    rb'\n(?:data: ?\{"error": ?+(?!%b|%b)|event: ?error[\r\n])' % (_NO_ERROR, _BEGINS_LIKE_IT),
)
_EVENT_ENDS = re.compile(rb"\n\r?\n")
_CLIENTS_OWN = re.compile(rb'"code": ?"?4[0-9]{2}\b')
_SERVERS_OWN = re.compile(
    rb'(?i)"code": ?"?5[0-9]{2}\b'
    rb'|"(?:error_)?type": ?"[a-z_]{0,40}?(?:internal|server|overloaded|generation|api_error)'
)
_LOOKED_AT = 1024
"""Bytes of the event in which its code and its type are looked for."""
_LONGEST_CUT = len(b'\ndata: {"error": fals')
"""What may be here of a line of which it cannot be told yet what it is."""


class ErrorEvents:
    """Looks for an event by which vLLM, SGLang and OpenAI's API (an `error` as the first field of the data, whose
    value is not one that says that there is none) or
    Anthropic's (`event: error`) tell of an error that is not the client's. Within what a model writes such a line
    cannot stand: JSON has its line ends escaped. Reads may cut the stream anywhere: what cannot be told yet is
    kept, 1,050 bytes at most.

    A stream that begins with an error, without a word whose it is, is taken for the client's: engines answer so to
    prompts that are too long, with a 200."""

    __slots__ = ("_begins", "_kept")

    def __init__(self) -> None:
        self._begins = True
        self._kept = b"\n"  # as before each line; in the middle of one that tells of nothing, nothing is kept

    def is_in(self, payload: bytes, ended: bool) -> bool:
        """Whether there is one in what has come up to and with `payload`, the next part of the stream; `ended`: the
        last one. Not to be called any more once it was true."""
        text, at = self._kept + payload, 0
        while b"error" in text and (found := _ERROR.search(text, at)):
            until = found.end() + _LOOKED_AT
            end = _EVENT_ENDS.search(text, found.end() - 1, until)
            if end is None and len(text) < until and not ended:
                self._kept = text[found.start() :]
                self._begins = self._begins and not found.start()
                return False
            last = until if end is None else end.start()
            if _SERVERS_OWN.search(text, found.end(), last) is not None:
                return True
            is_first = self._begins and not found.start()
            if not is_first and _CLIENTS_OWN.search(text, found.end(), last) is None:
                return True
            at = found.end() - 1
        self._begins = self._begins and b"\n" not in payload
        line = text.rfind(b"\n")
        self._kept = text[line:] if line >= 0 and len(text) - line <= _LONGEST_CUT else b""
        return False
