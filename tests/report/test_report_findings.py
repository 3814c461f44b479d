"""Which findings an incident gives, and which it must not."""

from __future__ import annotations

import pytest
from incidents import at, batch, blocks, cleared, kinds, only, report, stored

from kvctl.events import BlockRemoved, Gap, Note, Record, Restart, Undecodable, UnknownEvent
from kvctl.operate.until import Until
from kvctl.report.findings import MOST_OF_A_KIND


def gap(seq: int, second: float, count: int = 1, *, recovered: bool = False) -> Gap:
    ns = round(at(second) * 1e9)
    return Gap(ns, "pod-a", 0, seq, seq + count - 1, recovered, "lost on the way")


def restart(second: float, last_seq: int = 1) -> Restart:
    return Restart(round(at(second) * 1e9), "pod-a", 0, last_seq, f"seq went back from {last_seq}")


def test_a_quiet_stream_has_nothing_to_tell() -> None:
    found = report([batch(0, 0, stored(1, 2)), batch(1, 1, stored(3, parent=2))])
    assert found.findings == ()
    assert "No window shows" in found.headline
    assert "Findings: none" in found.headline


def test_a_clear_after_silence_is_a_window_of_the_silence_at_most() -> None:
    found = report([batch(0, 0, stored(1, 2, 3)), batch(1, 90, cleared(), stored(1, 2, 3))])
    finding = only(found, "stale-window")
    assert finding.severity == "medium"
    assert (finding.begin, finding.end) == (at(0), at(90))
    assert "3 entries stale for 1 min 30 s at most" in finding.what
    assert "1 min 30 s at most (pod-a" in found.headline
    # Stored after its clear: no sign of anything.
    assert kinds(found) == [("medium", "stale-window")]


def test_a_clear_at_work_is_no_window() -> None:
    found = report([batch(0, 0, stored(1, 2)), batch(1, 0.3, cleared(), stored(1, 2))])
    assert kinds(found) == [("info", "clears")]
    assert "0.3 s" in only(found, "clears").means


def test_a_clear_behind_a_store_of_its_own_batch_was_within_the_step() -> None:
    found = report([batch(0, 0, stored(1)), batch(1, 600, stored(2, parent=1), cleared())])
    assert kinds(found) == [("info", "clears")]


def test_a_clear_of_nothing_is_no_window() -> None:
    found = report([batch(0, 0, cleared()), batch(1, 600, cleared())])
    assert kinds(found) == [("info", "clears")]
    assert "nothing held" in only(found, "clears").what


def test_a_clear_that_came_late_to_us_says_by_how_much() -> None:
    found = report([batch(0, 0, stored(1)), batch(1, 0.5, cleared(), lag=7.0)])
    finding = only(found, "stale-window")
    assert "came to the recorder 7.0 s later than usual" in finding.means


def test_history_from_a_replay_is_not_late() -> None:
    """What was fetched at the start of a recording came long after it was made, the oldest most."""
    found = report(
        [batch(0, 0, stored(1), lag=300.0), batch(1, 0.5, cleared(), stored(1), lag=299.5)]
    )
    assert kinds(found) == [("info", "clears")]


def test_a_restart_makes_all_from_before_stale() -> None:
    found = report([batch(0, 0, stored(1, 2)), restart(40), batch(0, 41, stored(1, 2))])
    finding = only(found, "restart")
    assert finding.severity == "medium"
    assert (finding.begin, finding.end) == (at(0), at(41))
    assert "2 entries from before it stale for 41.0 s at most" in finding.what


def test_a_restart_of_which_nothing_came_since_has_no_window() -> None:
    finding = only(report([batch(0, 0, stored(1)), restart(5)]), "restart")
    assert finding.end is None
    assert "for a time unknown" in finding.what


def test_a_loss_leaves_what_was_before_in_doubt() -> None:
    found = report(
        [batch(0, 0, stored(1, 2)), gap(1, 1, 3), batch(4, 2, stored(9)), batch(5, 3, stored(10))]
    )
    finding = only(found, "gap")
    assert finding.severity == "medium"
    assert "3 batches of pod-a lost in 1 gap; 2 entries from before remain" in finding.what


def test_blocks_stored_anew_after_a_loss_prove_it() -> None:
    found = report(
        [batch(0, 0, stored(1, 2, 3)), gap(1, 1), batch(2, 2, stored(1, 2, 9)), batch(3, 3)]
    )
    assert kinds(found) == [("medium", "gap")]  # two of three again: the usual one, and another
    found = report(
        [
            batch(0, 0, stored(1, 2, 3, 4, 5)),
            gap(1, 1),
            batch(2, 2, stored(1, 2, 3)),
        ]
    )
    finding = only(found, "gap")
    assert finding.severity == "high"
    assert "it stored 3 blocks anew that the index still held, in 1 batch" in finding.means
    # Blocks 4 and 5 are those that nothing speaks for.
    assert "2 entries from before remain" in finding.what


def test_a_clear_ends_the_doubt() -> None:
    found = report([batch(0, 0, stored(1, 2)), gap(1, 1), batch(2, 61, cleared(), stored(1, 2))])
    finding = only(found, "gap")
    assert (finding.severity, finding.begin, finding.end) == ("medium", at(0), at(61))
    assert "the clear at" in finding.what
    assert "for 1 min 1 s" in finding.means


def test_a_loss_with_nothing_held_is_no_doubt() -> None:
    found = report([batch(0, 0, stored(1), cleared()), gap(1, 1), batch(2, 2, stored(1))])
    assert "gap" not in {kind for _severity, kind in kinds(found)}


def test_what_the_replay_brought_is_no_loss() -> None:
    found = report(
        [batch(0, 0, stored(1)), gap(1, 1, recovered=True), batch(1, 0.5, stored(2, parent=1))]
    )
    assert kinds(found) == [("info", "recovered")]


def test_a_beginning_that_was_not_recorded_is_told_apart_from_a_loss() -> None:
    found = report([gap(0, 1, 61), batch(61, 1, stored(1))])
    assert kinds(found) == [("low", "cold-start")]
    assert "0 batches lost" in found.headline


def test_the_last_block_of_a_prompt_stored_twice_is_usual() -> None:
    found = report([batch(0, 0, stored(1, 2)), batch(1, 1, stored(2, parent=1))])
    assert found.findings == ()


def test_many_blocks_stored_anew_without_a_loss_are_told() -> None:
    found = report([batch(0, 0, stored(1, 2, 3, 4)), batch(1, 1, stored(1, 2, 3, 4))])
    finding = only(found, "stored-again")
    assert "4 blocks anew" in finding.what


def test_a_pod_whose_connection_was_lost_is_not_taken_for_alive() -> None:
    note = Note(round(at(5) * 1e9), "pod-a", None, "tcp://10.0.0.7:5557: connection lost")
    found = report([batch(0, 0, stored(1, 2)), note, batch(0, 6, stored(1), pod="pod-b")])
    finding = only(found, "lost-sight")
    assert (finding.severity, finding.pod) == ("medium", "pod-a")
    assert "2 entries believed" in finding.what
    back = report([batch(0, 0, stored(1, 2)), note, batch(1, 6, stored(3, parent=2))])
    assert back.findings == ()


def test_a_pod_that_falls_silent_is_named() -> None:
    found = report([batch(0, 0, stored(1)), batch(0, 100, stored(1), pod="pod-b")])
    finding = only(found, "silent")
    assert (finding.severity, finding.pod) == ("low", "pod-a")
    assert "1 min 40 s" in finding.what


def test_what_cannot_be_read_is_counted() -> None:
    wire = batch(1, 1).wire
    unknown = UnknownEvent("Compressed", {})
    records: list[Record] = [batch(0, 0, unknown), Undecodable(wire, "no batch")]
    assert kinds(report(records)) == [("medium", "undecodable"), ("low", "unknown-events")]


def test_an_index_above_capacity_is_wrong() -> None:
    records = [batch(0, 0, stored(*blocks(1, 63)))]
    assert report(records, num_gpu_blocks=64).findings == ()
    finding = only(report(records, num_gpu_blocks=63), "over-capacity")
    assert finding.severity == "high"
    assert "63 entries in GPU memory, where 62 are possible" in finding.what


def test_small_things_are_small() -> None:
    found = report(
        [
            batch(0, 0, stored(5, parent=4), lag=-10.0),
            batch(1, 1, BlockRemoved([77]), lag=-10.0),
        ],
        pods=["pod-a", "pod-z"],
        warnings=lambda: ["x.kvcap: cut off"],
    )
    assert kinds(found) == [
        ("medium", "damage"),
        ("medium", "absent-pod"),
        ("low", "unanchored"),
        ("low", "clock"),
        ("info", "unknown-removes"),
    ]
    assert "10.0 s or more ahead" in only(found, "clock").what


@pytest.mark.parametrize("count", [10, 300])
def test_many_of_a_kind_are_told_in_part_and_counted_whole(count: int) -> None:
    records = []
    for number in range(count):
        records.append(batch(2 * number, 20.0 * number, stored(*blocks(1, 1 + number % 7))))
        records.append(batch(2 * number + 1, 20.0 * number + 10, cleared()))
    found = [each for each in report(records).findings if each.kind == "stale-window"]
    if count <= MOST_OF_A_KIND:
        assert len(found) == count
        return
    assert len(found) == MOST_OF_A_KIND + 1
    assert f"{count - MOST_OF_A_KIND} more like these" in found[-1].what
    # The heaviest stay: those of seven or six entries.
    assert all("7 entries" in each.what or "6 entries" in each.what for each in found[:-1])


def test_findings_beyond_what_is_kept_are_counted() -> None:
    records = []
    for number in range(1500):
        records.append(batch(2 * number, 20.0 * number, stored(1)))
        records.append(batch(2 * number + 1, 20.0 * number + 10, cleared()))
    found = report(records)
    assert "500 clears and restarts" in only(found, "wipes-left-out").what
    assert found.timeline.tally.clears == 1500


def test_a_note_from_behind_the_end_is_left_out() -> None:
    early, late = (
        Note(round(at(second) * 1e9), "pod-a", None, f"at {second}") for second in (1, 50)
    )
    records = [batch(0, 0, stored(1)), early, batch(1, 40, stored(2, parent=1)), late]
    found = report(records, until=Until(time=at(45)))
    assert [note.text for note in found.timeline.notes] == ["at 1"]
    assert found.findings == ()
