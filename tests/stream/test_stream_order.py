"""Order without sockets, case by case."""

from __future__ import annotations

import pytest
from stream_batches import junk, message, messages, shown

from kvctl.events import Batch, Gap, Restart, position_of
from kvctl.stream import Sequencer


def begun(last: int, *, replay: bool = True) -> Sequencer:
    """A sequencer that has given out seqs 0 to ``last`` of life 0."""
    sequencer = Sequencer("pod-a", 0, replay=replay, grace=5)
    if replay:
        sequencer.replayed(messages(range(last + 1)), True, 0)
    else:
        for each in messages(range(last + 1)):
            sequencer.feed(each, 0)
    assert sequencer.last_seq == last
    return sequencer


# -- without a replay -----------------------------------------------------------------------------


def test_a_stream_that_had_long_begun_is_a_cold_start() -> None:
    sequencer = Sequencer("pod-a", 0)
    (gap, batch) = sequencer.feed(message(61), 0)
    assert isinstance(gap, Gap)
    assert (gap.from_seq, gap.to_seq, gap.recovered, gap.reason) == (0, 60, False, "cold start")
    assert isinstance(batch, Batch)


def test_a_batch_that_comes_late_within_the_grace_fills_its_hole() -> None:
    sequencer = begun(0, replay=False)
    assert sequencer.feed(message(2), 1) == []
    assert sequencer.tick(5.9) == []
    assert shown(sequencer.feed(message(1), 5.9)) == [(0, 1), (0, 2)]
    assert sequencer.counts.gaps == 0


def test_a_hole_older_than_the_grace_is_a_gap() -> None:
    sequencer = begun(0, replay=False)
    sequencer.feed(message(2), 1)
    assert shown(sequencer.tick(6)) == [(1, 1, False), (0, 2)]
    assert (sequencer.counts.gaps, sequencer.counts.missing) == (1, 1)


def test_each_hole_has_its_own_grace() -> None:
    sequencer = begun(0, replay=False)
    sequencer.feed(message(2), 1)
    sequencer.feed(message(4), 4)
    assert shown(sequencer.tick(6)) == [(1, 1, False), (0, 2)]
    assert shown(sequencer.tick(9)) == [(3, 3, False), (0, 4)]


def test_a_late_batch_of_a_lost_gap_is_dropped_not_applied_behind_newer_ones() -> None:
    sequencer = begun(0, replay=False)
    sequencer.feed(message(2), 1)
    sequencer.tick(10)
    assert sequencer.feed(message(1), 11) == []
    assert (sequencer.counts.late, sequencer.counts.duplicates) == (1, 0)


def test_a_repeated_batch_is_dropped_and_counted() -> None:
    sequencer = begun(1, replay=False)
    assert sequencer.feed(message(1), 0) == sequencer.feed(message(0), 0) == []
    sequencer.feed(message(3), 0)
    assert sequencer.feed(message(3), 0) == []
    assert (sequencer.counts.duplicates, sequencer.counts.late) == (3, 0)


def test_a_batch_repeated_long_after_is_no_restart() -> None:
    sequencer = begun(2000, replay=False)
    assert sequencer.feed(message(3), 0) == []
    assert sequencer.counts.late == 1


def test_a_seq_that_goes_back_with_a_newer_time_is_a_restart() -> None:
    sequencer = begun(3, replay=False)
    restart, batch = sequencer.feed(message(0, 1), 0)
    assert isinstance(restart, Restart)
    assert restart.last_seq == 3
    assert isinstance(batch, Batch)
    assert shown(sequencer.feed(message(1, 1), 0)) == [(1, 1)]


def test_a_restart_whose_first_batches_were_lost_begins_with_a_gap() -> None:
    sequencer = begun(9, replay=False)
    assert shown(sequencer.feed(message(4, 1), 0)) == ["restart", (0, 3, False), (1, 4)]


def test_a_restart_below_a_hole_ends_the_hole() -> None:
    sequencer = begun(0, replay=False)
    sequencer.feed(message(9), 1)
    assert shown(sequencer.feed(message(3, 1), 2)) == [
        (1, 8, False), (0, 9), "restart", (0, 2, False), (1, 3),
    ]  # fmt: skip


def test_another_batch_under_a_seq_that_waits_is_a_restart() -> None:
    sequencer = begun(0, replay=False)
    sequencer.feed(message(3), 1)
    out = shown(sequencer.feed(message(3, 1), 2))
    assert out == [(1, 2, False), (0, 3), "restart", (0, 2, False), (1, 3)]


@pytest.mark.parametrize(
    "other",
    [message(1, 0, topic=b"kv@a@other"), message(1, 0, b"x" * 32), message(1, 0, b"x" * 16)],
    ids=["topic", "32-byte-hashes", "16-byte-hashes"],
)
def test_another_topic_or_form_of_hashes_is_another_life_though_the_seq_goes_on(
    other: Batch,
) -> None:
    sequencer = begun(0, replay=False)
    assert shown(sequencer.feed(other, 0)) == ["restart", (0, 0, False), (0, 1)]


def test_a_batch_without_topic_is_no_restart() -> None:
    sequencer = begun(0, replay=False)
    assert shown(sequencer.feed(message(1, topic=b""), 0)) == [(0, 1)]
    assert shown(sequencer.feed(message(2), 0)) == [(0, 2)]


def test_a_clock_set_back_over_a_reconnection_does_not_hide_a_restart() -> None:
    sequencer = begun(5, replay=False)
    assert sequencer.feed(message(0, ts=900.0), 0) == []  # nothing says that this is not late
    sequencer.connected(again=True)
    assert [type(each) for each in sequencer.feed(message(0, ts=900.0), 0)] == [Restart, Batch]


def test_an_undecodable_batch_keeps_its_place() -> None:
    sequencer = begun(0, replay=False)
    assert sequencer.feed(junk(2), 0) == []
    first, second = sequencer.feed(message(1), 0)
    assert (first, second) == (message(1), junk(2))
    assert shown(sequencer.feed(message(3), 0)) == [(0, 3)]
    assert (sequencer.counts.batches, sequencer.counts.undecodable) == (4, 1)


def test_an_undecodable_batch_repeated_is_a_duplicate() -> None:
    sequencer = Sequencer("pod-a", 0)
    sequencer.feed(junk(0), 0)
    assert sequencer.feed(junk(0), 0) == []
    assert sequencer.counts.duplicates == 1


def test_holding_is_bounded_in_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvctl.stream.order.MAX_HELD", 3)
    sequencer = begun(0, replay=False)
    for seq in (2, 3, 4):
        assert sequencer.feed(message(seq), 1) == []
    assert shown(sequencer.feed(message(5), 1)) == [(1, 1, False), (0, 2), (0, 3), (0, 4), (0, 5)]


# -- with a replay --------------------------------------------------------------------------------


def test_the_stream_begins_with_the_replay_and_holds_what_comes_live() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    assert sequencer.want == 0
    assert sequencer.feed(message(2), 0) == sequencer.feed(message(3), 0) == []
    assert sequencer.held == 2
    out = sequencer.replayed(messages([0, 1, 2]), True, 0)
    assert shown(out) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert sequencer.settled
    assert (sequencer.counts.duplicates, sequencer.counts.recovered) == (0, 0)


def test_what_the_buffer_no_longer_holds_is_a_cold_start() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    gap, *_ = sequencer.replayed(messages([7, 8]), True, 0)
    assert isinstance(gap, Gap)
    assert (gap.from_seq, gap.to_seq, gap.recovered) == (0, 6, False)
    assert gap.reason == "cold start: older than the replay buffer"


def test_since_seq_is_where_the_stream_begins() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True, since_seq=5)
    assert sequencer.want == 5
    assert shown(sequencer.replayed(messages([5, 6]), True, 0)) == [(0, 5), (0, 6)]


def test_an_engine_that_has_not_come_to_since_seq_is_no_restart() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True, since_seq=100)
    assert sequencer.replayed([], True, 0) == []
    assert shown(sequencer.feed(message(50), 0)) == [(0, 50)]
    assert shown(sequencer.feed(message(51), 0)) == [(0, 51)]


def test_a_replay_that_does_not_answer_is_a_cold_start_and_the_held_go_on() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    for each in messages([3, 4, 6]):
        sequencer.feed(each, 0)
    out = sequencer.replayed([], False, 0)
    assert shown(out) == [(0, 2, False), (0, 3), (0, 4), (5, 5, False), (0, 6)]
    reasons = [gap.reason for gap in out if isinstance(gap, Gap)]
    assert reasons == ["cold start", "the replay did not answer"]


def test_a_gap_is_asked_for_from_the_last_batch_seen() -> None:
    sequencer = begun(4)
    sequencer.feed(message(7), 1)
    assert sequencer.tick(5.9) == []
    assert sequencer.want is None
    sequencer.tick(6)
    assert sequencer.want == 4
    out = sequencer.replayed(messages([4, 5, 6, 7, 8]), True, 6)
    assert shown(out) == [(5, 6, True), (0, 5), (0, 6), (0, 7), (0, 8)]
    assert sequencer.counts.recovered == 2
    assert sequencer.feed(message(8), 7) == []  # live, after it came from the replay
    assert sequencer.counts.duplicates == 1


def test_every_hole_that_the_replay_fills_is_told() -> None:
    sequencer = begun(0)
    for each in messages([2, 4, 5]):
        sequencer.feed(each, 0)
    sequencer.tick(10)
    out = sequencer.replayed(messages(range(6)), True, 10)
    assert shown(out) == [
        (1, 1, True), (0, 1), (0, 2), (3, 3, True), (0, 3), (0, 4), (0, 5),
    ]  # fmt: skip


def test_what_came_live_fills_the_holes_of_an_answer_that_is_not_whole() -> None:
    sequencer = begun(0)
    sequencer.feed(message(2), 0)
    sequencer.feed(message(3), 0)
    sequencer.tick(10)
    sequencer.feed(message(4), 10)
    out = sequencer.replayed(messages([0, 1, 3, 5]), False, 10)
    assert shown(out) == [(1, 1, True), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]
    assert sequencer.counts.missing == 0


def test_what_the_replay_lacks_is_lost_for_good() -> None:
    sequencer = begun(0)
    sequencer.feed(message(5), 0)
    sequencer.tick(10)
    out = sequencer.replayed(messages([0, 1, 2, 5]), False, 10)
    assert shown(out) == [(1, 2, True), (0, 1), (0, 2), (3, 4, False), (0, 5)]
    assert sequencer.settled


def test_a_hole_behind_the_answer_is_asked_for_anew() -> None:
    sequencer = begun(0)
    sequencer.feed(message(2), 0)
    sequencer.tick(10)
    sequencer.asked()
    sequencer.feed(message(5), 10)  # 3 and 4 were published after the replay answered
    out = sequencer.replayed(messages([0, 1, 2]), True, 11)
    assert shown(out) == [(1, 1, True), (0, 1), (0, 2)]
    sequencer.tick(20)
    assert sequencer.want == 2
    assert shown(sequencer.replayed(messages([2, 3, 4, 5]), True, 20)) == [
        (3, 4, True), (0, 3), (0, 4), (0, 5),
    ]  # fmt: skip


def test_a_restart_seen_live_is_recovered_from_its_begin() -> None:
    sequencer = begun(5)
    assert shown(sequencer.feed(message(2, 1), 0)) == ["restart"]
    assert (sequencer.want, sequencer.held) == (0, 1)
    out = sequencer.replayed(messages([0, 1, 2], 1), True, 0)
    assert shown(out) == [(1, 0), (1, 1), (1, 2)]


def test_a_restart_with_a_higher_seq_is_seen_by_the_replay() -> None:
    sequencer = begun(2)
    sequencer.feed(message(5, 1), 0)
    sequencer.tick(10)
    assert sequencer.want == 2
    out = sequencer.replayed(messages([2, 3, 4, 5], 1), True, 10)
    assert shown(out) == ["restart"]
    assert (sequencer.want, sequencer.held) == (0, 1)
    out = sequencer.replayed(messages(range(6), 1), True, 10)
    assert shown(out) == [(1, seq) for seq in range(6)]


def test_what_waited_when_the_engine_restarted_ends_the_old_life() -> None:
    sequencer = begun(2)
    sequencer.feed(message(5), 0)
    sequencer.tick(10)
    out = sequencer.replayed(messages([2, 3], 1), True, 10)
    assert shown(out) == [(3, 4, False), (0, 5), "restart"]
    assert shown(sequencer.replayed(messages(range(4), 1), True, 10)) == [
        (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip


def test_a_replay_that_ends_before_what_was_seen_is_of_a_new_life() -> None:
    sequencer = begun(2)
    sequencer.connected(again=True)
    assert sequencer.want == 2
    assert shown(sequencer.replayed([], True, 0)) == ["restart"]
    assert sequencer.want == 0
    assert shown(sequencer.replayed([message(0, 1)], True, 0)) == [(1, 0)]


def test_a_replay_of_other_hashes_is_of_a_new_life() -> None:
    sequencer = begun(2)
    sequencer.connected(again=True)
    out = sequencer.replayed([message(7, 1, b"x" * 32)], True, 0)
    assert shown(out) == ["restart"]


def test_a_reconnection_to_the_same_life_recovers_what_was_missed() -> None:
    sequencer = begun(2)
    sequencer.connected(again=True)
    out = sequencer.replayed(messages([2, 3, 4]), True, 0)
    assert shown(out) == [(3, 4, True), (0, 3), (0, 4)]


def test_a_reconnection_that_missed_nothing_leaves_no_trace() -> None:
    sequencer = begun(2)
    sequencer.connected(again=True)
    assert sequencer.replayed(messages([2]), True, 0) == []
    assert shown(sequencer.feed(message(3), 0)) == [(0, 3)]


def test_a_connection_made_after_the_replay_was_given_up_asks_again() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    sequencer.replayed([], False, 0)
    assert sequencer.want is None
    sequencer.connected(again=False)
    assert sequencer.want == 0


def test_a_replay_that_holds_less_than_came_live_takes_nothing_away() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    sequencer.connected(again=False)
    sequencer.feed(message(0), 0)
    sequencer.asked()
    assert shown(sequencer.replayed([], True, 0)) == [(0, 0)]


def test_a_batch_of_the_old_life_that_was_held_back_is_dropped() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    assert sequencer.feed(message(500, 0), 0) == []
    out = sequencer.replayed(messages(range(3), 1), True, 0)
    assert shown(out) == [(1, 0), (1, 1), (1, 2)]
    assert sequencer.counts.late == 1


def test_what_came_before_the_answer_and_is_not_in_it_is_of_an_earlier_life() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    sequencer.feed(message(0, 0), 0)
    sequencer.connected(again=True)
    sequencer.asked()
    sequencer.feed(message(0, 1), 0)
    assert shown(sequencer.replayed([], True, 0)) == [(1, 0)]
    assert sequencer.counts.late == 1


def test_an_engine_that_restarts_while_it_answers_is_asked_again() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    sequencer.feed(message(0, 1), 0)
    sequencer.feed(message(1, 1), 0)
    out = sequencer.replayed(messages(range(4)), True, 0)
    assert shown(out) == [(0, 0), (0, 1), (0, 2), (0, 3), "restart"]
    assert (sequencer.want, sequencer.held) == (0, 2)
    assert shown(sequencer.replayed(messages([0, 1], 1), True, 0)) == [(1, 0), (1, 1)]


def test_a_stray_of_an_earlier_life_is_dropped_when_the_replay_shows_what_it_is() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True, grace=5)
    sequencer.replayed(messages(range(3), 1), True, 0)
    sequencer.feed(message(500, 0), 0)
    sequencer.tick(10)
    assert sequencer.replayed(messages([2], 1), True, 10) == []
    assert sequencer.settled
    assert sequencer.counts.late == 1
    assert shown(sequencer.feed(message(3, 1), 11)) == [(1, 3)]


def test_a_new_life_is_seen_though_its_buffer_no_longer_holds_the_seq_asked_for() -> None:
    sequencer = begun(2)
    sequencer.feed(message(9), 0)
    sequencer.tick(10)
    out = sequencer.replayed(messages([5, 6, 7], 1), True, 10)
    assert shown(out) == [(3, 8, False), (0, 9), "restart"]
    assert sequencer.want == 0


def test_a_late_comer_after_a_reconnection_to_the_same_life_is_no_restart() -> None:
    sequencer = begun(400)
    sequencer.connected(again=True)
    sequencer.replayed(messages([400]), True, 0)
    assert sequencer.feed(message(3), 0) == []
    assert sequencer.counts.late == 1


def test_a_batch_of_a_later_life_does_not_fill_a_hole_of_the_answer() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    sequencer.feed(message(2, 1), 0)
    out = sequencer.replayed(messages([0, 1, 3]), False, 0)
    assert shown(out) == [(0, 0), (0, 1), (2, 2, False), (0, 3), "restart"]
    assert (sequencer.want, sequencer.held) == (0, 1)


def test_what_came_behind_a_batch_of_a_later_life_is_kept_for_that() -> None:
    sequencer = Sequencer("pod-a", 0, replay=True)
    sequencer.feed(message(0, 1), 0)
    sequencer.feed(junk(1), 0)
    assert shown(sequencer.replayed(messages(range(4)), True, 0))[-1] == "restart"
    assert sequencer.held == 2
    assert sequencer.replayed([message(0, 1)], True, 0) == [message(0, 1), junk(1)]


def test_holding_for_the_replay_is_bounded_in_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvctl.stream.order.MAX_HELD", 3)
    sequencer = Sequencer("pod-a", 0, replay=True)
    for seq in (5, 6, 7):
        assert sequencer.feed(message(seq), 0) == []
    out = sequencer.feed(message(8), 0)
    assert shown(out) == [(0, 4, False), (0, 5), (0, 6), (0, 7), (0, 8)]
    assert sequencer.want is None
    assert sequencer.replayed(messages(range(9)), True, 0) == []  # it comes too late


# -- behind a position ----------------------------------------------------------------------------


def resumed(last: int, *, replay: bool = True) -> Sequencer:
    position = position_of(message(last))
    return Sequencer("pod-a", 0, replay=replay, grace=5, resume=position)


def test_a_stream_goes_on_behind_the_position_it_had_come_to() -> None:
    sequencer = resumed(7)
    assert (sequencer.want, sequencer.last_seq) == (7, 7)
    sequencer.feed(message(9), 0)
    out = sequencer.replayed(messages([7, 8, 9]), True, 0)
    assert shown(out) == [(0, 8), (0, 9)]  # what we were away for is no gap


def test_a_position_of_another_life_is_a_restart() -> None:
    sequencer = resumed(7)
    out = sequencer.replayed(messages([7, 8], 1), True, 0)
    assert shown(out) == ["restart"]
    assert shown(sequencer.replayed(messages(range(9), 1), True, 0)) == [
        (1, seq) for seq in range(9)
    ]


def test_a_position_that_the_engine_has_not_come_to_is_of_another_life() -> None:
    assert shown(resumed(7).replayed([], True, 0)) == ["restart"]


def test_what_the_buffer_has_lost_since_the_position_is_a_gap() -> None:
    gap, *_ = resumed(7).replayed(messages([20, 21]), True, 0)
    assert isinstance(gap, Gap)
    assert (gap.from_seq, gap.to_seq, gap.reason) == (8, 19, "older than the replay buffer")


def test_without_a_replay_a_position_is_gone_on_from_with_what_comes() -> None:
    sequencer = resumed(7, replay=False)
    sequencer.feed(message(10), 0)
    assert shown(sequencer.tick(10)) == [(8, 9, False), (0, 10)]
    assert shown(resumed(7, replay=False).feed(message(3, ts=1.0), 0))[0] == "restart"


def test_the_end_gives_out_what_is_held() -> None:
    sequencer = begun(0)
    sequencer.feed(message(2), 0)
    sequencer.tick(10)
    sequencer.feed(message(4), 10)
    out = sequencer.flush()
    assert shown(out) == [(1, 1, False), (0, 2), (3, 3, False), (0, 4)]
    assert sequencer.held == 0
