"""What joins a watched fleet, and what leaves it."""

from __future__ import annotations

from dataclasses import replace

from kvctl.errors import KvctlError
from kvctl.fleet import (
    FleetChange,
    FleetFollower,
    FleetSnapshot,
    FleetWatch,
    LeftPod,
    Pod,
    SkippedPod,
    parse_pod,
)

A, B = parse_pod("name=prod/a,host=10.0.0.1"), parse_pod("name=prod/b,host=10.0.0.2")
A_ELSEWHERE = parse_pod("name=prod/a,host=10.0.0.9")


class Told:
    """A fleet that changes when the test says so."""

    fault: KvctlError | None = None

    def __init__(self, *pods: FleetSnapshot) -> None:
        self._left = list(pods)

    def poll(self) -> FleetSnapshot | None:
        return self._left.pop(0) if self._left else None

    def close(self) -> None:
        self._left.clear()


def follow(*snapshots: FleetSnapshot, names: tuple[str, ...] = ()) -> FleetFollower:
    watch: FleetWatch = Told(*snapshots)
    return FleetFollower(watch, names)


def test_pods_of_the_first_snapshot_have_not_joined() -> None:
    follower = follow(FleetSnapshot((A, B)))
    assert follower.pods == (A, B)
    assert follower.changes() == FleetChange()


def test_a_pod_joins_and_leaves_once() -> None:
    follower = follow(FleetSnapshot((A,)), FleetSnapshot((A, B)), FleetSnapshot((A,)))
    assert follower.changes() == FleetChange(joined=(B,))
    assert follower.changes() == FleetChange(left=(LeftPod(B, "it is gone"),))
    assert follower.changes() == FleetChange()
    assert follower.pods == (A,)


def test_a_pod_that_is_left_out_from_now_on_has_left_for_that_reason() -> None:
    skipped = SkippedPod(A.name, "it is being deleted")
    follower = follow(FleetSnapshot((A, B)), FleetSnapshot((B,), (skipped,)))
    assert follower.changes() == FleetChange(left=(LeftPod(A, "it is being deleted"),))


def test_a_pod_that_is_elsewhere_has_left_and_joined() -> None:
    follower = follow(FleetSnapshot((A,)), FleetSnapshot((A_ELSEWHERE,)))
    change = follower.changes()
    assert change.joined == (A_ELSEWHERE,)
    assert change.left == (LeftPod(A, "another has its name now"),)


def test_only_the_pods_with_the_names_are_followed() -> None:
    first, second = FleetSnapshot((B,), (SkippedPod("prod/c", "x"),)), FleetSnapshot((A, B))
    bare, full = follow(first, second, names=("a",)), follow(first, second, names=("prod/a",))
    assert bare.pods == full.pods == ()
    assert bare.skipped == ()
    assert bare.changes() == full.changes() == FleetChange(joined=(A,))


class Ways:
    """Ways to pods, and which are open."""

    def __init__(self) -> None:
        self.open: list[Pod] = []

    def reach(self, pod: Pod) -> Pod:
        reached = replace(pod, api_via="http://127.0.0.1:1")
        if reached not in self.open:
            self.open.append(reached)
        return reached

    def let_go(self, pod: Pod) -> None:
        self.open.remove(pod)


def test_a_way_is_open_to_the_pods_that_are_there_and_closed_after_it_was_told() -> None:
    ways = Ways()
    watch = Told(FleetSnapshot((A,)), FleetSnapshot((A, B)), FleetSnapshot((B,)))
    follower = FleetFollower(watch, (), ways)
    a, b = (replace(pod, api_via="http://127.0.0.1:1") for pod in (A, B))
    assert follower.pods == (a,)
    assert follower.changes() == FleetChange(joined=(b,))
    assert ways.open == [a, b]
    assert follower.changes() == FleetChange(left=(LeftPod(a, "it is gone"),))
    assert ways.open == [a, b]  # whoever reads it hears of it first
    assert follower.changes() == FleetChange()
    assert ways.open == [b]


def test_no_way_is_opened_to_a_pod_that_is_not_followed() -> None:
    ways = Ways()
    FleetFollower(Told(FleetSnapshot((A, B))), ("a",), ways)
    assert [pod.name for pod in ways.open] == ["prod/a"]
