"""The instances last known, on the disk: a responder that starts while Redis is away begins with them, and checks
find out which of them live."""

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

import structlog
from pydantic import TypeAdapter

from slb.control.instances import InstanceInfo
from slb.control.private import create_private, make_private, read_private
from slb.errors import ConfigError

_INFOS = TypeAdapter(list[InstanceInfo])

_log = structlog.get_logger("slb.dns")


class KeptInstances:
    """A file in `directory`, of the Redis at `url`. Responders that share the directory share it: the last writer
    wins. Everything blocks."""

    def __init__(self, directory: Path, url: str) -> None:
        self.path = directory / f"instances-{blake2b(url.encode(), digest_size=6).hexdigest()}.json"
        self._fault = ""

    def load(self) -> list[InstanceInfo]:
        """Empty where there are none; what cannot be used is logged."""
        try:
            return _INFOS.validate_json(read_private(self.path)[0])
        except FileNotFoundError:
            return []
        except (OSError, ValueError, ConfigError) as error:
            _log.warning("dns_instances_unusable", file=str(self.path), error=str(error))
            return []

    def keep(self, infos: Sequence[InstanceInfo]) -> None:
        """Replace what is kept. Why it cannot be is logged once."""
        unnamed = self.path.with_suffix(f".{uuid4().hex}.new")
        try:
            make_private(self.path.parent, "data_dir")
            with open(create_private(unnamed), "wb") as file:
                file.write(_INFOS.dump_json(list(infos)))
            os.replace(unnamed, self.path)
            self._fault = ""
        except (OSError, ConfigError) as error:
            if str(error) != self._fault:
                self._fault = str(error)
                _log.warning("dns_instances_not_kept", file=str(self.path), error=self._fault)
            with suppress(OSError):
                unnamed.unlink()
