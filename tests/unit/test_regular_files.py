"""What is no regular file, or has no end, is refused wherever files of the operator are read."""

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from slb.addresses import AddressRules
from slb.authorities import client_context
from slb.discovery.kube_access import Access, Credentials, access_of
from slb.discovery.members_file import read_members
from slb.errors import ConfigError
from slb.loading import file_value, load_settings
from slb.proxy.tls import Certificate
from slb.regular_files import LONGEST
from slb.upstreams.tls_files import Pair

_POD = {"KUBERNETES_SERVICE_HOST": "h"}
READERS: dict[str, Callable[[Path], object]] = {
    "--config": lambda file: load_settings({}, {}, file),
    "tokens_path": lambda file: load_settings({"tokens_path": str(file)}, {}),
    "SLB_API_TOKEN_FILE": lambda file: load_settings({}, {"SLB_API_TOKEN_FILE": str(file)}),
    "token of a command": lambda file: file_value("SLB_API_TOKEN_FILE", str(file)),
    "ca": client_context,
    "certificate of a listener": lambda file: Certificate(Pair(file, file)),
    "certificate for upstreams": lambda file: Pair(file, file).load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)),
    "members": lambda file: read_members(file, AddressRules((), list)),
    "namespace": lambda file: access_of("", "", None, None, _POD, file.parent),
    "token of a pod": lambda file: Credentials(Access("https://h", "default", token=file)).headers(),
    "authority of a pod": lambda file: Credentials(Access("https://h", "default", authority=file)).context(),
}


def pipe(file: Path) -> str:
    os.mkfifo(file)
    return "it is not a regular file"


def device(file: Path) -> str:
    file.symlink_to("/dev/zero")
    return "it is not a regular file"


def huge(file: Path) -> str:
    with file.open("wb") as opened:
        opened.truncate(LONGEST + 1)
    return f"it has more than {LONGEST} bytes"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("make", [pipe, device, huge])
def test_what_would_block_or_fill_memory_is_refused(
    tmp_path: Path, make: Callable[[Path], str], reader: str
) -> None:
    file = tmp_path / "namespace"
    why = make(file)
    with pytest.raises((ConfigError, OSError), match=why) as caught:
        READERS[reader](file)
    assert str(file) in str(caught.value)
