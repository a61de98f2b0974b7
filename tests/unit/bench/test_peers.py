"""The peers' configurations, filled in."""

import re
from pathlib import Path

import pytest

from bench.peers import PEERS, SLB, Peer, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, 8000, 8001, (9001, 9002), "someone")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_no_mark_is_left_in_command_or_configuration(peer: Peer, site: Site) -> None:
    argv = peer.command("/bin/program", site)
    written = [(site.home / name).read_text() for name in peer.configs]
    assert not re.search(r"@\w+@", " ".join([*argv, *written, *peer.environment_at(site).values()]))


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer is not SLB], ids=lambda peer: peer.name)
def test_every_peer_listens_on_the_loopback_and_has_both_upstreams(peer: Peer, site: Site) -> None:
    peer.command("/bin/program", site)
    written = "".join((site.home / name).read_text() for name in peer.configs)
    assert {"127.0.0.1", "8000", "9001", "9002"} <= set(re.findall(r"[\d.]+", written))


def test_slb_keeps_its_data_in_the_measurement_s_own_folder(site: Site) -> None:
    assert SLB.environment_at(site) == {"SLB_DATA_DIR": f"{site.home}/data"}
    assert SLB.command("slb", site)[1:4] == ["serve", "--listen", "127.0.0.1:8000"]


def test_an_unknown_mark_is_an_error(site: Site) -> None:
    with pytest.raises(KeyError, match="colour"):
        site.fill("paint it @colour@")
