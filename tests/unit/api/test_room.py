"""How many connections the API takes, by its settings and by what may be open."""

import pytest

from slb.api_server import room
from slb.loading import load_settings


@pytest.mark.parametrize(
    ("settings", "open_files", "expected"),
    [
        ({}, 1_000_000, (4096, 2048, 513)),
        ({}, 20_000, (4096, 2048, 513)),
        ({}, 1024, (256, 128, 33)),
        ({"roles": "quota"}, 1024, (512, 256, 65)),
        ({"roles": "proxy,quota"}, 1024, (256, 128, 33)),
        ({"api_max_connections": 100}, 1024, (100, 50, 13)),
        ({"api_max_connections": 0}, 40_000, (10_000, 2048, 1251)),
        ({"api_max_connections_per_peer": 0}, 1024, (256, 0, 33)),
        ({}, 2, (1, 1, 1)),
    ],
)
def test_traffic_keeps_most_of_the_descriptors(
    settings: dict[str, object], open_files: int, expected: tuple[int, int, int]
) -> None:
    assert room(load_settings(settings, {}), open_files) == expected
