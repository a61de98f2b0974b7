"""Events of a stream in which an inference engine tells that it has failed, once its answer has begun with a
200."""

import re

_ERROR = re.compile(rb'(?:^|\n)(?:data: ?\{"error": ?+(?!null|""|\{\})|event: ?error[\r\n])')
_CLIENTS_OWN = re.compile(rb'"code": ?"?4[0-9]{2}\b')
_LOOKED_AT = 1024
"""Bytes of the event in which its code is looked for."""


def tells_error(payload: bytes) -> bool:
    """Whether `payload`, some of a stream of events, has an event by which vLLM, SGLang and OpenAI's API (an
    `error` as the first field of the data) or Anthropic's (`event: error`) tell of an error that is not the
    client's. Within what a model writes such a line cannot stand: JSON has its line ends escaped. An event that
    is cut between two reads is not seen."""
    if b"error" not in payload:
        return False
    found = _ERROR.search(payload)
    return found is not None and _CLIENTS_OWN.search(payload, found.end(), found.end() + _LOOKED_AT) is None
