"""What a process gets at its start: file < environment < flags, and one clear line where that cannot be."""

from pathlib import Path

import pytest

from slb.config import OWN_HEADERS, Settings
from slb.control.lane_timing import SPARE, LaneTiming
from slb.errors import ConfigError
from slb.loading import load_settings, misspellings, token_for_commands
from slb.setting_types import MOST_PATIENCE
from slb.setting_values import access_log_share, certificate_files
from slb.upstreams.fields import _KINDS
from tests.unit.settings_rig import SECRET, fault, load


def test_a_flag_wins_over_the_environment_and_that_over_the_file(toml: Path) -> None:
    toml.write_text('listen = "127.0.0.1:1"\napi = "127.0.0.1:1"\nlog_level = "debug"\n')
    environ = {"SLB_LISTEN": "127.0.0.1:2", "SLB_API": "127.0.0.1:2"}
    settings = load(environ, {"listen": "127.0.0.1:3", "api": None}, toml)
    assert (settings.listen, settings.api, settings.log_level) == ("127.0.0.1:3", "127.0.0.1:2", "debug")


@pytest.mark.parametrize("setting", ["listen", "api"])
def test_a_port_that_is_none_is_named_with_its_setting_and_with_what_ports_are(setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags={setting: "0.0.0.0:99999"})
    why = "is not HOST:PORT: a port is 1 to 65535, or 0 for one that is free"
    assert str(caught.value) == f"{setting} = '0.0.0.0:99999': '0.0.0.0:99999' {why}"


def test_a_file_that_is_not_there_is_named_once_in_plain_words(toml: Path) -> None:
    assert fault(toml=toml) == f"config file {toml}: No such file or directory"


def test_a_setting_that_is_called_a_file_is_set_by_its_own_variable(tmp_path: Path) -> None:
    settings = load({"SLB_DISCOVERY_KUBERNETES_TOKEN_FILE": str(tmp_path / "token")})
    assert settings.discovery_kubernetes_token_file == tmp_path / "token"


def test_in_the_environment_the_names_of_flags_do_too(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("redis://h\n")
    assert load({"SLB_REDIS": "redis://h"}) == load({"SLB_REDIS_URL": "redis://h"})
    assert load({"SLB_REDIS_FILE": str(tmp_path / "url")}) == load({"SLB_REDIS_URL": "redis://h"})
    assert load({"SLB_TLS_CERTIFICATE": "a.pem"}).tls_certificates == ("a.pem",)
    line = fault({"SLB_REDIS": "redis://a", "SLB_REDIS_URL": "redis://b"})
    assert line == "SLB_REDIS and SLB_REDIS_URL are both set: keep one of them"


@pytest.mark.parametrize("variable", ["SLB_DEFAULTS", "SLB_ROUTES", "SLB_DEFAULTS_FILE", "SLB_ROUTES_FILE"])
def test_route_settings_in_the_environment_are_refused_with_the_place_where_they_are_set(variable: str) -> None:
    line = fault({variable: "policy=p2c"})
    assert line.startswith(f"{variable}: route settings are not read from the environment")
    assert all(place in line for place in ("[defaults]", "--config", "SLB_CONFIG", "slb route set"))


def test_variables_that_are_nearly_a_setting_are_found_with_the_one_that_may_be_meant() -> None:
    environ = dict.fromkeys(("SLB_WORKER", "SLB_API_TOKN_FILE", "SLB_ACESS_LOG"), "x")
    assert misspellings(environ) == [
        ("SLB_ACESS_LOG", "SLB_ACCESS_LOG"),
        ("SLB_API_TOKN_FILE", "SLB_API_TOKEN_FILE"),
        ("SLB_WORKER", "SLB_WORKERS"),
    ]


def test_what_slb_reads_and_what_kubernetes_sets_is_no_misspelling() -> None:
    read = (
        "SLB_URL",
        "SLB_TOKEN",
        "SLB_TOKEN_FILE",
        "SLB_CA",
        "SLB_CONFIG",
        "SLB_API_TOKEN",
        "SLB_API_TOKEN_FILE",
        "SLB_DATA_DIR",
        "SLB_REDIS",
        "SLB_NAME",
    )
    kubernetes = ("PORT", "SERVICE_HOST", "SERVICE_PORT_API", "PORT_80_TCP_ADDR", "REDIS_PORT", "API_PORT")
    assert misspellings(dict.fromkeys([*read, *(f"SLB_{name}" for name in kubernetes), "WORKER"], "x")) == []


def test_a_token_beside_the_url_that_commands_use_looks_meant_for_commands() -> None:
    assert token_for_commands({"SLB_API_TOKEN": "x", "SLB_URL": "http://h"}) == "SLB_API_TOKEN"
    assert token_for_commands({"SLB_API_TOKEN_FILE": "f", "SLB_URL": "http://h"}) == "SLB_API_TOKEN_FILE"
    for environ in ({"SLB_API_TOKEN": "x"}, {"SLB_TOKEN": "x", "SLB_URL": "http://h"}, {}):
        assert token_for_commands(environ) is None


def test_a_file_that_is_not_there_is_named() -> None:
    line = fault({"SLB_REDIS_URL_FILE": "/nowhere/at/all"})
    assert line == "SLB_REDIS_URL_FILE: /nowhere/at/all cannot be read: No such file or directory"


def test_a_file_that_holds_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "name").write_text(" \n")
    assert fault({"SLB_NAME_FILE": str(tmp_path / "name")}) == f"SLB_NAME_FILE: {tmp_path / 'name'} is empty"


@pytest.mark.parametrize("name", ["SLB_PORT", "SLB_SERVICE_HOST", "OTHER", "slb_listen"])
def test_other_variables_are_not_ours_to_refuse(name: str) -> None:
    assert load({name: "tcp://10.0.0.1:80"}) == load()


def test_lists_are_written_with_commas() -> None:
    settings = load({"SLB_UPSTREAM_NETWORKS": "10.0.0.0/8, fd00::/8,", "SLB_TRUSTED_PROXIES": ""})
    assert list(map(str, settings.upstream_networks)) == ["10.0.0.0/8", "fd00::/8"]
    assert settings.trusted_proxies == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLB_LISTEN", "8080"),
        ("SLB_LISTEN", "127.0.0.1:99999"),
        ("SLB_API", "::1:80"),
        ("SLB_WORKERS", "0"),
        ("SLB_WORKERS", "many"),
        ("SLB_ROLES", "dancer"),
        ("SLB_UPSTREAM_NETWORKS", "10.0.0.1/8"),
        ("SLB_ACCESS_LOG", "2"),
        ("SLB_ACCESS_LOG", "some"),
        ("SLB_LOG_LEVEL", "loud"),
        ("SLB_DRAIN_TIMEOUT", "30"),
        ("SLB_HEAD_TIMEOUT", "0"),
        ("SLB_MAX_HEADERS", "0"),
        ("SLB_NAME", "a b"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_naming_setting_and_value(name: str, value: str) -> None:
    line = fault({name: value})
    assert name.removeprefix("SLB_").lower() in line
    assert value in line


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour = 'red'", "colour"),
        ("[defaults]\nretries = 99", "retries"),
        ("[defaults]\ncolour = 'red'", "colour"),
        ("[routes.'/p']\npolicy = 'x'", "policy"),
        ("[defaults]\nmax_inflight = -1", "max_inflight = -1: "),
        ("[routes.'/p']\nqueue_limit = 10_000_000", "queue_limit = 10000000: "),
        ("[defaults]\npriorities = 'critical'", "priorities = 'critical': "),
        ("[routes.'/p'.priorities]\ncritical = 0", "priorities = {'critical': 0}: "),
        ("[routes.'/p/']\nretries = 1", "/p/"),
        ("[routes.p]\nretries = 1", "'p'"),
        ("workers = ", "slb.toml"),
        ("workers = " + "[" * 10_000, "slb.toml"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_naming_what_is_wrong(toml: Path, text: str, named: str) -> None:
    toml.write_text(text)
    assert named in fault(toml=toml)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[routes.'/q']\nretries = 1\n[routes.'/p']\nretires = 1",
            "routes: /p: retires: there is no route setting of this name; is retries meant?",
        ),
        ("[defaults]\nretries = 1\ncolour = 1", "defaults: colour: there is no route setting of this name"),
        ("[listen]\nport = 1", "listen: Input should be a valid string"),
    ],
)
def test_of_a_table_only_what_is_wrong_is_shown(toml: Path, text: str, line: str) -> None:
    toml.write_text(text)
    assert fault(toml=toml) == line


UNKNOWN = [f"x{each:02}: there is no setting of this name" for each in range(12)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lisen = ':1'", "lisen: there is no setting of this name; is listen meant?"),
        ("redis = 'redis://h'", "redis: there is no setting of this name; is redis_url meant?"),
        ("colour = 'red'", "colour: there is no setting of this name"),
        (
            "workers = 0\ncolour = 'red'\nlisen = ':1'",
            "colour: there is no setting of this name; lisen: there is no setting of this name; is listen meant?",
        ),
        ("\n".join(f"x{each:02} = 1" for each in range(12)), "; ".join(UNKNOWN[:10]) + "; and 2 more"),
        ("[default]\nretries = 1", "default: there is no setting of this name; is defaults meant?"),
        ("[route.'/p']\nretries = 1", "route: there is no setting of this name; is routes meant?"),
        ("[quota]\nleas = '3s'", "quota_leas: there is no setting of this name; is quota_lease meant?"),
        (
            "first_byte_timeout = '2m'",
            "first_byte_timeout: there is no setting of this name; on a route there is: "
            'put it under [defaults] or [routes."/path"]',
        ),
        (
            "[defaults]\nretries = 1\nworkers = 2",
            "defaults: workers: there is no route setting of this name; it is a setting of the whole process: "
            "in the file it stands above the first [table]",
        ),
    ],
)
def test_the_error_for_a_name_that_is_no_setting_has_what_may_be_meant(toml: Path, text: str, line: str) -> None:
    toml.write_text(text)
    assert fault(toml=toml) == line


def test_settings_of_dns_are_read_from_their_table_and_as_texts(toml: Path) -> None:
    toml.write_text("[dns]\nzones = ['A.test.', 'b.test']\nviews = '10.1.0.0/16=a, fd00::/8=b'\nttl = '7s'")
    settings = load(
        {"SLB_DNS_LISTEN": "127.0.0.1:53,[::1]:53", "SLB_ADVERTISE": "192.0.2.1, 2001:db8::1"}, toml=toml
    )
    assert (settings.dns_zones, settings.dns_ttl) == (("a.test", "b.test"), 7.0)
    assert [(str(network), zone) for network, zone in settings.dns_views] == [
        ("10.1.0.0/16", "a"),
        ("fd00::/8", "b"),
    ]
    assert settings.dns_listen == ("127.0.0.1:53", "[::1]:53")
    assert settings.advertise == ("192.0.2.1", "2001:db8::1")
    again = Settings.model_validate(settings.model_dump(mode="json", exclude={"redis_url"}))
    assert again.dns_views == settings.dns_views, "as workers get them"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("dns_zones = ''", "dns_zones"),
        ("dns_zones = 'a..b'", "dns_zones"),
        ("dns_views = '10.1.0.0/16'", "NETWORK=ZONE"),
        ("advertise = 'slb-1:80'", "DNS answers with addresses"),
        ("dns_ttl = '0s'", "dns_ttl"),
        ("roles = 'proxy,dns'\nworkers = 2", "answer DNS in a process of its own"),
    ],
)
def test_settings_of_dns_that_make_no_sense_are_refused(toml: Path, text: str, line: str) -> None:
    toml.write_text(text)
    assert line in fault(toml=toml)


def test_the_error_for_a_network_with_host_bits_has_which_may_be_meant(toml: Path) -> None:
    toml.write_text("upstream_networks = ['fd00::/8', '10.0.0.1/8']")
    assert fault(toml=toml).endswith("10.0.0.1/8 has host bits set: is 10.0.0.0/8 meant?")
    assert fault({"SLB_TRUSTED_PROXIES": "fd00::1/8"}).endswith("is fd00::/8 meant?")
    toml.write_text("upstream_networks = ['10.0.0.1', 'fd00::1/128', '10.1.2.0/24']")
    assert list(map(str, load(toml=toml).upstream_networks)) == ["10.0.0.1/32", "fd00::1/128", "10.1.2.0/24"]
    assert "IPv4 network" in fault({"SLB_UPSTREAM_NETWORKS": "ten"})


def test_bytes_that_are_no_text_are_refused_like_any_bad_file(toml: Path) -> None:
    toml.write_bytes(b"\xff\xfe")
    assert "slb.toml" in fault(toml=toml)


def test_settings_of_a_route_come_from_redis_then_its_table_then_the_defaults() -> None:
    settings = Settings.model_validate(
        {"defaults": {"retries": 3, "idle_timeout": "3s"}, "routes": {"/p": {"retries": 4, "policy": "random"}}}
    )
    found = settings.route_settings("/p", {"policy": "p2c"})
    assert (found.policy, found.retries, found.idle_timeout, found.first_byte_timeout) == ("p2c", 4, 3.0, 60.0)
    assert settings.route_settings("/p/q", {}).retries == 3


def test_priorities_may_be_a_table_in_a_file(toml: Path) -> None:
    toml.write_text("[defaults.priorities]\nbatch = 1\ncritical = 8\n[routes.'/p']\npriorities = 'a=2,b=3'")
    settings = load(toml=toml)
    assert settings.route_settings("/q", {}).priorities == (("critical", 8), ("batch", 1))
    assert settings.route_settings("/p", {}).priorities == (("b", 3), ("a", 2))
    assert settings.route_settings("/p", {"priorities": "c=1"}).priorities == (("c", 1),)


def test_the_root_may_have_settings_of_its_own() -> None:
    assert Settings.model_validate({"routes": {"/": {"retries": 2}}}).route_settings("/", {}).retries == 2


def test_an_instance_notices_that_it_is_alone_before_its_lease_ends() -> None:
    assert LaneTiming().lease - LaneTiming().beat - SPARE == MOST_PATIENCE
    assert load({"SLB_LEDGER_PATIENCE": f"{MOST_PATIENCE}s"}).ledger_patience == MOST_PATIENCE
    line = fault({"SLB_LEDGER_PATIENCE": "30s"})
    assert "ledger_patience = '30s': 30s is more than 7.5s" in line
    assert "lease of 10s ends" in line


def test_the_access_log_may_be_a_number_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "slb.toml").write_text("access_log = 0.25\n")
    assert access_log_share(load_settings({}, {}, tmp_path / "slb.toml").access_log) == 0.25
    (tmp_path / "slb.toml").write_text("access_log = true\n")
    with pytest.raises(ConfigError, match="access_log = True"):
        load_settings({}, {}, tmp_path / "slb.toml")


def test_certificates_are_named_with_their_keys_or_as_one_file_that_holds_both() -> None:
    settings = load({"SLB_TLS_CERTIFICATES": "a.pem:a.key, both.pem"})
    files = [certificate_files(each) for each in settings.tls_certificates]
    assert files == [(Path("a.pem"), Path("a.key")), (Path("both.pem"), Path("both.pem"))]
    for wrong in (":a.key", "a.pem:", "a.pem:b:c"):
        assert fault({"SLB_TLS_CERTIFICATES": wrong}).startswith("tls_certificates = ")


def test_settings_that_do_not_go_together_are_reported_by_name() -> None:
    both = {"SLB_LISTEN": "127.0.0.1:9", "SLB_API": "127.0.0.1:9"}
    assert fault(both) == "listen and api are both 127.0.0.1:9: give each a port of its own"
    assert load(dict.fromkeys(both, "127.0.0.1:0")).api == "127.0.0.1:0"
    for listen, api in (("0.0.0.0:9", "127.0.0.1:9"), ("127.0.0.1:9", ":9"), ("[::]:9", "0.0.0.0:9")):
        assert fault({"SLB_LISTEN": listen, "SLB_API": api}) == (
            f"listen = {listen} and api = {api} meet, for one of them is on all addresses: "
            "give each a port of its own"
        )
    for listen, api in (("0.0.0.0:9", "[::1]:9"), ("127.0.0.1:9", "127.0.0.2:9"), (":0", "127.0.0.1:0")):
        assert load({"SLB_LISTEN": listen, "SLB_API": api}).listen == listen
    assert fault({"SLB_PROXY_PROTOCOL": "on"}).startswith("proxy_protocol = true: set trusted_proxies")
    assert fault({"SLB_UPSTREAM_KEY": "k.pem"}) == "upstream_key = k.pem: set upstream_certificate too"


@pytest.mark.parametrize(
    "name", [*(each.decode() for each in _KINDS), "X-Forwarded-For", "x_real_ip", "x.real!ip", "x-forwarded-x"]
)
def test_headers_that_slb_deals_with_itself_cannot_be_dropped_by_a_list(name: str) -> None:
    """Of Content-Length that would be a way to smuggle requests."""
    assert {each.encode() for each in OWN_HEADERS} == _KINDS.keys()
    assert fault({"SLB_UNTRUSTED_HEADERS": f"X-A,{name.upper()}"}).startswith("untrusted_headers = ")
    assert fault({"SLB_UNTRUSTED_HEADERS": f"X-A,{name.upper()}"}).endswith("acts on, sets or removes")


def test_untrusted_headers_are_names_between_commas() -> None:
    assert load_settings({}, {"SLB_UNTRUSTED_HEADERS": "X-A, Y_b"}).untrusted_headers == ("X-A", "Y_b")
    assert load_settings({"untrusted_headers": ""}, {}).untrusted_headers == ()
    assert fault({"SLB_UNTRUSTED_HEADERS": "a b"}).startswith("untrusted_headers = ")


def test_a_table_of_the_file_gives_settings_of_longer_names_which_the_environment_wins_over(toml: Path) -> None:
    toml.write_text(
        f"[jobs]\ncallback_secrets = ['{SECRET}', '{SECRET}']\ncallback_networks = ['10.0.0.0/8']\n"
        "[quota]\nfail = 'open'\nlease = '60s'"
    )
    settings = load(toml=toml)
    assert settings.jobs_callback_secrets is not None
    assert settings.jobs_callback_secrets.get_secret_value() == f"{SECRET},{SECRET}"
    assert list(map(str, settings.jobs_callback_networks)) == ["10.0.0.0/8"]
    assert (settings.quota_fail, settings.quota_lease) == ("open", 60)
    given = load({"SLB_QUOTA_FAIL": "closed", "SLB_JOBS_CALLBACK_NETWORKS": "192.0.2.0/24"}, toml=toml)
    assert list(map(str, given.jobs_callback_networks)) == ["192.0.2.0/24"]
    assert (given.quota_fail, given.quota_lease) == ("closed", 60)
