"""Settings that are refused are logged, and not without end."""

from structlog.testing import capture_logs

from slb.control.settings_faults import SettingsFaults


def test_each_fault_is_logged_once_and_once_more_when_its_route_is_in_order() -> None:
    telling, at_fault = SettingsFaults(), {"/a": ["x: no"], "/b": ["y: no"]}
    with capture_logs() as logs:
        telling.log(at_fault)
        telling.log(dict(at_fault))
        telling.log({"/a": ["x: no", "z: no"]})
    assert [(line["event"], line["route"], line.get("fault")) for line in logs] == [
        ("setting_refused", "/a", "x: no"),
        ("setting_refused", "/b", "y: no"),
        ("setting_refused", "/a", "z: no"),
        ("settings_in_order", "/b", None),
    ]


def test_thousands_of_faults_at_once_are_logged_in_a_hundred_lines_and_one() -> None:
    with capture_logs() as logs:
        SettingsFaults().log({f"/{each}": ["x: no"] * 60 for each in range(1000)})
    assert len(logs) == 101
    assert logs[-1]["fault"] == "and 59900 more, here and elsewhere"


def test_thousands_that_are_mended_at_once_are_logged_in_a_hundred_lines_and_one() -> None:
    telling = SettingsFaults()
    telling.log({f"/{each}": ["x: no"] for each in range(1000)})
    with capture_logs() as logs:
        telling.log({})
        telling.log({})
    assert {line["event"] for line in logs} == {"settings_in_order"}
    assert [line["route"] for line in logs] == [f"/{each}" for each in range(101)]
    assert [line["others"] for line in logs if "others" in line] == [899]
