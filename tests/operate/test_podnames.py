from __future__ import annotations

from dataclasses import replace

import pytest

from kvctl.fleet import Pod, parse_pod
from kvctl.operate.podnames import pod_names


def test_a_pod_is_known_by_its_name_its_address_and_its_endpoints() -> None:
    names = pod_names([parse_pod("name=default/pod-a,host=10.0.0.7")])
    for word in ("default/pod-a", "pod-a", "10.0.0.7", "10.0.0.7:8000", "tcp://10.0.0.7:5557"):
        assert names[word] == "default/pod-a"
    assert "10.0.0.8" not in names


def test_what_two_pods_share_means_neither() -> None:
    names = pod_names(
        [
            parse_pod("name=a,api=http://10.0.0.7:8000,events=tcp://10.0.0.7:5557"),
            parse_pod("name=b,api=http://10.0.0.7:8001,events=tcp://10.0.0.7:5567"),
        ]
    )
    assert "10.0.0.7" not in names
    assert (names["10.0.0.7:8000"], names["10.0.0.7:8001"]) == ("a", "b")


def test_a_host_by_name_is_known_by_its_address_too() -> None:
    names = pod_names([parse_pod("name=a,host=localhost")])
    assert names["localhost"] == "a"
    assert names.get("127.0.0.1", names.get("::1")) == "a"


def test_a_name_that_resolves_to_nothing_is_no_error() -> None:
    assert pod_names([parse_pod("name=a,host=no-such-host.invalid")])["no-such-host.invalid"] == "a"


def forwarded(pod: Pod) -> Pod:
    streams = tuple(replace(each, events_via="tcp://127.0.0.1:4001") for each in pod.streams)
    return replace(pod, api_via="http://127.0.0.1:4000", streams=streams)


def test_a_pod_that_is_forwarded_is_known_by_its_own_address_alone() -> None:
    direct = parse_pod("name=prod/pod-a,host=10.0.0.7")
    names = pod_names([forwarded(direct)])
    assert names == pod_names([direct])
    assert "10.0.0.7" in names
    assert not any("127.0.0.1" in word for word in names)


def test_a_pod_that_is_forwarded_and_has_no_ip_is_no_host_of_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_more: pytest.fail("looked up"))
    names = pod_names([forwarded(parse_pod("name=prod/localhost,host=localhost"))])
    assert names["localhost"] == "prod/localhost"
