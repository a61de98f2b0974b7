"""Settings that are secrets: where they may stand, and that none is ever shown."""

import json
import re
from pathlib import Path

import pytest

from slb.config import Settings
from slb.errors import ConfigError
from slb.setting_values import trace_headers
from tests.unit.settings_rig import SECRET, fault, load


def test_no_setting_that_is_a_secret_is_shown_where_it_is_refused() -> None:
    known_by_name = re.compile("secret|token(?!_file|s$|s_path)|trace_headers|redis_url|password")
    secrets = [name for name in Settings.model_fields if known_by_name.search(name)]
    assert len(secrets) >= 5
    for name in secrets:
        with pytest.raises(ConfigError) as caught:
            load(flags={name: ["mine", 1]})
        assert str(caught.value).startswith(f"{name} = **********: ")


@pytest.mark.parametrize("text", ["", " ", "\n", "\t \n"])
def test_an_empty_token_opens_nothing_but_is_an_error(tmp_path: Path, toml: Path, text: str) -> None:
    """The file of a secret that is not mounted yet; taken for no token, the API would stand open."""
    (tmp_path / "token").write_text(text)
    toml.write_text(f"api_token = {json.dumps(text)}")
    file = tmp_path / "token"
    assert fault({"SLB_API_TOKEN_FILE": str(file)}) == f"SLB_API_TOKEN_FILE: {file} is empty"
    for line in (fault({"SLB_API_TOKEN": text}), fault(toml=toml)):
        assert line.startswith("api_token = **********: it is empty")


def test_a_value_can_stand_in_a_file_the_environment_names(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    settings = load({"SLB_API_TOKEN_FILE": str(tmp_path / "token")})
    assert settings.api_token is not None
    assert settings.api_token.get_secret_value() == "secret"


def test_a_value_and_a_file_that_holds_it_are_not_taken_together(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    line = fault({"SLB_API_TOKEN": "other", "SLB_API_TOKEN_FILE": str(tmp_path / "token")})
    assert line == "SLB_API_TOKEN and SLB_API_TOKEN_FILE are both set: keep one of them"


def test_secrets_are_never_shown(toml: Path) -> None:
    settings = load({"SLB_API_TOKEN": "hush", "SLB_REDIS_URL": "redis://:hush@h"})
    assert "hush" not in repr(settings) + str(settings)
    toml.write_text("api_token = ['hush']")
    assert "hush" not in fault(toml=toml)


@pytest.mark.parametrize("text", ["hush", f"{SECRET},hush", "", " , "])
def test_a_signing_secret_that_is_none_is_refused_and_not_shown(text: str, tmp_path: Path, toml: Path) -> None:
    toml.write_text(f"[jobs]\ncallback_secrets = {json.dumps(text)}")
    for line in (fault(toml=toml), fault({"SLB_JOBS_CALLBACK_SECRETS": text})):
        assert line.startswith("jobs_callback_secrets = **********: ")
        assert "hush" not in line
        assert SECRET[6:] not in line


def test_headers_for_traces_are_read_as_opentelemetry_writes_them(toml: Path) -> None:
    toml.write_text("[trace]\nheaders = ['Authorization=Bearer%20hush', 'X-Team=a%2Cb']")
    settings = load(toml=toml)
    assert settings.trace_headers is not None
    text = settings.trace_headers.get_secret_value()
    assert trace_headers(text) == {"Authorization": "Bearer hush", "X-Team": "a,b"}
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    "text", ["hush", "Auth orization=hush", "=hush", "X-A=", "X-A=hush%0D%0AX-B: b", "X-A=hush%C3"]
)
def test_headers_for_traces_that_are_none_are_refused_and_not_shown(text: str) -> None:
    line = fault({"SLB_TRACE_HEADERS": text})
    assert line.startswith("trace_headers = **********: ")
    assert "hush" not in line


def test_signing_secrets_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text(f"{SECRET},{SECRET}\n")
    settings = load({"SLB_JOBS_CALLBACK_SECRETS_FILE": str(file)})
    assert settings.jobs_callback_secrets is not None
    assert settings.jobs_callback_secrets.get_secret_value() == f"{SECRET},{SECRET}"
    assert SECRET not in repr(settings)
