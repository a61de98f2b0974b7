"""compose/ as far as it can be judged without Docker: its files parse and agree with each other."""

import os
import shutil
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import dns.zone
import pytest
import yaml
from typer.testing import CliRunner

from slb.cli.entry import app
from slb.loading import load_settings

FOLDER = Path(__file__).parent.parent / "compose"
Services = dict[str, dict[str, Any]]


@pytest.fixture
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return loaded


@pytest.fixture
def services(compose: dict[str, Any]) -> Services:
    found: Services = compose["services"]
    return found


@pytest.fixture
def zone() -> dns.zone.Zone:
    return dns.zone.from_file(str(FOLDER / "slb.test.zone"), "slb.test.")


def _address(service: dict[str, Any]) -> str:
    return str(service["networks"]["slb"]["ipv4_address"])


def test_every_service_has_its_own_address_in_the_network(compose: dict[str, Any], services: Services) -> None:
    network = ip_network(compose["networks"]["slb"]["ipam"]["config"][0]["subnet"])
    addresses = [ip_address(_address(service)) for service in services.values()]
    assert len(set(addresses)) == len(services)
    assert all(address in network for address in addresses)


def test_the_name_stands_for_the_addresses_of_both_instances(services: Services, zone: dns.zone.Zone) -> None:
    records = {record.address for record in zone.get_rdataset("@", "A") or ()}
    assert records == {_address(services["slb1"]), _address(services["slb2"])}
    assert records == {"10.253.253.2", "10.253.253.3"}


def test_the_name_server_in_the_zone_is_the_dns_service(services: Services, zone: dns.zone.Zone) -> None:
    assert [record.address for record in zone.get_rdataset("ns", "A") or ()] == [_address(services["dns"])]
    assert f"{_address(services['dns'])}:53" in services["client"]["command"]


@pytest.mark.parametrize("name", ["upstream1", "upstream2"])
def test_each_upstream_registers_its_own_address_through_the_first_instance(services: Services, name: str) -> None:
    command = services[name]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--advertise"] == f"{_address(services[name])}:{options['--listen'].rpartition(':')[2]}"
    assert options["--register"] == f"http://{_address(services['slb1'])}:8080"
    assert CliRunner().invoke(app, [*command, "--help"]).exit_code == 0


@pytest.mark.parametrize("name", ["slb1", "slb2"])
def test_the_instances_settings_are_ones_slb_accepts(services: Services, name: str) -> None:
    settings = load_settings({}, services[name]["environment"])
    assert settings.redis_url.get_secret_value() == f"redis://{_address(services['redis'])}:6379/0"


def test_every_service_that_calls_the_api_gets_the_shared_token_and_starts_only_with_it(
    services: Services,
) -> None:
    for name in ("slb1", "slb2", "upstream1", "upstream2"):
        variable = "SLB_TOKEN" if name.startswith("upstream") else "SLB_API_TOKEN"
        assert services[name]["environment"][variable].startswith("${SLB_API_TOKEN:?")


def test_every_service_but_the_client_is_checked_and_waited_for(services: Services) -> None:
    for name, service in services.items():
        if name != "client":
            assert service["healthcheck"]["test"][0] == "CMD"
        for wait in service.get("depends_on", {}).values():
            assert wait == {"condition": "service_healthy"}


def test_every_file_the_images_and_mounts_name_is_there(services: Services) -> None:
    for service in services.values():
        for mount in service.get("volumes", ()):
            assert (FOLDER / mount.partition(":")[0]).is_file()
    for line in (FOLDER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (FOLDER.parent / source).exists(), source


def test_docker_compose_itself_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no docker compose here")
    command = [docker, "compose", "--file", str(FOLDER / "compose.yaml"), "config", "--quiet"]
    environ = {**os.environ, "SLB_API_TOKEN": "secret"}
    run = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert run.returncode == 0, run.stderr
