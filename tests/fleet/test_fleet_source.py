"""Where a fleet's pods come from."""

from __future__ import annotations

import pytest

from kvctl.errors import UsageError
from kvctl.fleet import FleetSnapshot, PodSource, StaticPods, merge_pods, parse_pod

A, B = parse_pod("name=pod-a,host=10.0.0.1"), parse_pod("name=pod-b,host=10.0.0.2")
OTHER_A = parse_pod("name=pod-a,host=10.0.0.9")


def test_a_fleet_written_down_is_complete() -> None:
    source: PodSource = StaticPods([A, B])
    assert source.pods() == FleetSnapshot((A, B), (), True)


def test_two_pods_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="pod pod-a is given twice"):
        StaticPods([A, B, OTHER_A])
    with pytest.raises(UsageError, match="pod pod-a is given twice"):
        merge_pods([A, OTHER_A], [B])


def test_a_flag_stands_in_for_a_contexts_pod_of_the_same_name() -> None:
    assert merge_pods([OTHER_A], [A, B]) == (OTHER_A, B)
    assert merge_pods([], [A, B]) == (A, B)
