"""Which pods a command line means."""

from __future__ import annotations

import pytest

from kvctl.errors import UsageError
from kvctl.fleet import parse_pod, pod_from_endpoint, select_pods

A = parse_pod("name=blue/pod-a,host=10.0.0.1")
B = parse_pod("name=blue/pod-b,host=10.0.0.2")
GREEN_A = parse_pod("name=green/pod-a,host=10.0.0.3")
FLEET = (A, B, GREEN_A)


def test_no_name_means_every_pod() -> None:
    assert select_pods(FLEET) == FLEET
    assert select_pods((), []) == ()


def test_names_choose_in_their_order_and_each_once() -> None:
    assert select_pods(FLEET, ["green/pod-a", "blue/pod-a", "green/pod-a"]) == (GREEN_A, A)


def test_a_bare_name_is_enough_where_it_is_the_only_one() -> None:
    assert select_pods(FLEET, ["pod-b", "blue/pod-b"]) == (B,)
    with pytest.raises(UsageError, match=r"'pod-a' is in several namespaces .*blue/pod-a, green/"):
        select_pods(FLEET, ["pod-a"])
    bare = parse_pod("name=pod-a,host=10.0.0.9")
    assert select_pods((*FLEET, bare), ["pod-a"]) == (bare,)


def test_an_unknown_name_suggests_the_nearest_or_lists_what_there_is() -> None:
    with pytest.raises(
        UsageError, match=r"no pod 'blue/pod-x' \(did you mean blue/pod-a or blue/pod-b\?"
    ):
        select_pods(FLEET, ["blue/pod-x"])
    with pytest.raises(UsageError, match=r"no pod 'zzz' \(known: blue/pod-a, blue/pod-b, green/"):
        select_pods(FLEET, ["zzz"])
    with pytest.raises(UsageError, match=r"no pod is known \(name pods with --pod"):
        select_pods((), ["pod-a"])
    with pytest.raises(UsageError) as caught:
        select_pods(FLEET, ["\x1b[31m"])
    assert str(caught.value).isprintable()


def test_a_large_fleet_is_not_listed_whole() -> None:
    many = [parse_pod(f"name=replica-{number},host=h") for number in range(1000)]
    with pytest.raises(UsageError, match="and 980 more") as caught:
        select_pods(many, ["zzz"])
    assert len(str(caught.value)) < 400


def test_an_address_is_a_pod_only_where_that_is_allowed() -> None:
    chosen = select_pods(FLEET, ["pod-b", "tcp://10.0.0.9:5557"], addresses=True)
    assert chosen == (B, pod_from_endpoint("10.0.0.9"))
    with pytest.raises(UsageError, match="there is no pod 'tcp://10"):
        select_pods(FLEET, ["tcp://10.0.0.9:5557"])
    named = parse_pod("name=10.0.0.9,host=10.0.0.1")
    assert select_pods((named,), ["10.0.0.9"], addresses=True) == (named,)
