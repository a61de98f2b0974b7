"""What single settings take, and why they refuse the rest."""

from ipaddress import ip_network
from typing import Annotated, Any

import pytest
from pydantic import SecretStr, TypeAdapter, ValidationError

from slb.setting_types import (
    COMMAS,
    AccessLogSetting,
    Address,
    Certificates,
    HashKey,
    HealthBody,
    HealthJson,
    HealthPath,
    HealthPost,
    Networks,
    Patience,
    Token,
)


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        (Address, ":80", ":80"),
        (Annotated[tuple[str, ...], COMMAS], "a, b,", ("a", "b")),
        (Networks, "10.0.0.0/8, 10.1.0.1", (ip_network("10.0.0.0/8"), ip_network("10.1.0.1"))),
        (Certificates, "a.pem:a.key,b.pem", ("a.pem:a.key", "b.pem")),
        (AccessLogSetting, 0.01, "0.01"),
        (AccessLogSetting, "errors", "errors"),
        (Token, "secret", SecretStr("secret")),
        (Token, None, None),
        (Patience, "2s", 2.0),
        (HashKey, "query:user", "query:user"),
        (HealthPath, "none", None),
        (HealthBody, "Ollama is running", "Ollama is running"),
        (HealthBody, "none", None),
        (HealthJson, "status=ok", "status=ok"),
        (HealthJson, "models.0.state=is ready = yes", "models.0.state=is ready = yes"),
        (HealthJson, "none", None),
        (HealthPost, '/v1/completions {"max_tokens": 1}', '/v1/completions {"max_tokens": 1}'),
        (HealthPost, "none", None),
    ],
)
def test_a_value_is_read_as_it_is_meant(kind: Any, written: object, read: object) -> None:
    assert TypeAdapter(kind).validate_python(written) == read


@pytest.mark.parametrize(
    ("kind", "written", "message"),
    [
        (Address, "80", "is not HOST:PORT"),
        (Networks, "10.0.0.0/8,10.0.0.1/8", r"10.0.0.1/8 has host bits set: is 10.0.0.0/8 meant\?"),
        (Certificates, "a.pem:", "is neither CERTIFICATE:KEY"),
        (AccessLogSetting, True, "valid string"),
        (AccessLogSetting, "1.5", "a share from 0 to 1"),
        (Token, " ", "it is empty"),
        (Patience, "7.6s", "7.6s is more than 7.5s"),
        (HashKey, "query:a b", "a key is path, ip"),
        (HealthBody, "", "pattern"),
        (HealthBody, "a\r\nb", "pattern"),
        (HealthBody, "x" * 257, "at most 256"),
        (HealthJson, "status", "such as status=ok"),
        (HealthJson, "status=", "such as status=ok"),
        (HealthJson, ".status=ok", "such as status=ok"),
        (HealthJson, "a b=ok", "such as status=ok"),
        (HealthJson, "a=\x1b[2J", "such as status=ok"),
        (HealthJson, "x=" + "y" * 511, "at most 512"),
        (HealthPost, '{"max_tokens": 1}', "a path, a blank and JSON"),
        (HealthPost, "/v1/completions", "behind the path and a blank comes JSON, but"),
        (HealthPost, "/v1/completions {max_tokens: 1}", "behind the path and a blank comes JSON, but"),
        (HealthPost, "/v1\r\nX: y {}", "a path, a blank and JSON"),
        (HealthPost, "/x " + "[" * 5000, "behind the path"),
        (HealthPost, f'/x "{"y" * 8192}"', "at most 8192"),
    ],
)
def test_a_value_is_refused_with_its_reason(kind: Any, written: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(kind).validate_python(written)
