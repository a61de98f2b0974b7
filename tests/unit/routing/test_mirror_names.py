"""Names in DNS among the members of a route: they are kept with the route, and get no requests."""

from tests.unit.routing.mirror_rig import A, B, make_mirror, record, replace, upstreams

FLUX, SRV = "dns://flux.test:80", "dns+srv://_http._tcp.flux.test"


def test_a_name_in_dns_is_no_upstream_and_is_known_as_a_name() -> None:
    mirror = make_mirror()
    replace(mirror, {"/p": record(A, FLUX, SRV), "/q": record(B)})
    assert upstreams(mirror, "/p") == [A]
    assert mirror.upstreams.keys() == {A, B}
    assert mirror.table.routes["/p"].names == (SRV, FLUX)
    assert mirror.table.named.keys() == {"/p"}
    assert mirror.uses(FLUX) == 1


def test_names_come_and_go_with_their_routes() -> None:
    mirror = make_mirror()
    replace(mirror, {"/p": record(A)})
    mirror.update({"/p": record(A, FLUX), "/q": record(SRV)}, {})
    assert {path: route.names for path, route in mirror.table.named.items()} == {"/p": (FLUX,), "/q": (SRV,)}
    assert upstreams(mirror, "/q") == []
    mirror.update({"/p": record(A), "/q": None}, {})
    assert not mirror.table.named
    assert mirror.uses(FLUX) == 0


def test_other_settings_keep_the_names_of_a_route() -> None:
    mirror = make_mirror()
    replace(mirror, {"/p": record(A, FLUX)})
    other = make_mirror(defaults={"retries": 7})
    for _ in mirror.reconfigure(other._maker.settings_for):
        pass
    assert mirror.table.named["/p"].settings.retries == 7
    assert mirror.table.named["/p"].names == (FLUX,)
