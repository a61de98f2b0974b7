"""Settings as a process reads them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from slb.config import Settings
from slb.errors import ConfigError
from slb.loading import load_settings

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def load(
    environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None, toml: Path | None = None
) -> Settings:
    return load_settings(flags or {}, environ or {}, toml)


def fault(environ: Mapping[str, str] | None = None, toml: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(environ, toml=toml)
    line = str(caught.value)
    assert "\n" not in line.strip()
    return line
