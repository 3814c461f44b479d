"""What `kvctl report -o json` prints, field by field."""

from __future__ import annotations

from kvctl.cli.shape import Field, Shape
from kvctl.cli.shape import described as _f

_POD = _f("pod", "text", "the pod's name")
_RANK = _f("rank", "int", "its DP rank")
_FINDING = (
    _f("severity", "text", "`high`, `medium`, `low` or `info`"),
    _f("kind", "text", "a word for programs: `stale-window`, `restart`, `gap`, ..."),
    _f("pod?", "text", "absent: all of them"),
    _f("rank?", "int"),
    _f("begin?", "float"),
    _f("end?", "float", "absent: to the end of the capture, or not known"),
    _f("what", "text", "what was found"),
    _f("means", "text", "what that means"),
    _f("todo", "text", "what to do"),
)
_WIPE = (
    _f("type", "text", "`clear` or `restart`"),
    _POD,
    _RANK,
    _f("seq?", "int", "the batch of the clear"),
    _f("after?", "float", "the engine's last batch before: the wipe was behind it"),
    _f("at?", "float", "the batch that told of it"),
    _f("received", "float", "our clock"),
    _f("entries", "int", "held from before, void since"),
    _f("window_s?", "float", "seconds for which they were stale at most"),
    _f("late_s?", "float", "seconds that the batch took longer to us than others"),
    _f("reason?", "text", "what showed a restart"),
)
_GAP = (
    _POD,
    _RANK,
    _f("from_seq", "int"),
    _f("to_seq", "int", "inclusive"),
    _f("recovered", "bool", "whether the replay brought the batches after all"),
    _f("cold_start", "bool", "whether it is what was before the capture"),
    _f("reason", "text"),
    _f("after?", "float", "the batch before"),
    _f("before?", "float", "the batch behind"),
    _f("received", "float", "our clock"),
)
_DOUBT = (
    _POD,
    _RANK,
    _f("begin", "float", "the last batch before the first loss"),
    _f("entries", "int", "held then, not sure since"),
    _f("gaps", "int"),
    _f("missing", "int", "batches"),
    _f("stored_again", "int", "blocks stored anew since that the index still held"),
    _f("left?", "int", "of the entries, at the end; absent where it was settled"),
    _f("settled?", "float", "when a clear or a restart made an end of it"),
    _f("settled_by?", "text"),
)
_SERIES = (
    _f("begin", "float", "when slice 0 begins"),
    _f("width_s", "float", "seconds of a slice"),
    _f("count", "int", "slices"),
    _f(
        "pods",
        "list of object",
        "a row per DP rank",
        _POD,
        _RANK,
        _f("entries_before", "int", "when the report begins"),
        _f("entries", "int", "at the end"),
        _f("peak", "int"),
        _f("peak_at?", "float"),
        _f("first?", "float", "its first batch"),
        _f("last?", "float", "its last"),
        _f("last_received?", "float", "our clock"),
        _f("offset_s?", "float", "the least that our clock was ahead when a batch came"),
        _f("batches", "int"),
        _f("lost", "int", "batches, without those before the capture"),
        _f(
            "samples",
            "list of object",
            "slices in which something happened",
            _f("slice", "int"),
            _f("entries", "int", "at its end"),
            _f("low", "int", "the fewest in it"),
            _f("high", "int", "the most in it"),
            _f("stores", "int", "events"),
            _f("removes", "int", "events"),
            _f("clears", "int", "events"),
            _f("unknown", "int", "events"),
        ),
    ),
)
_PREFIXES = (
    _f("shared", "int", "runs that several hold or that fork"),
    _f("holders", "map of int", "distinct blocks by how many can match them"),
    _f("cut_off", "int", "distinct blocks that nobody can match: one before them is gone"),
    _f(
        "runs",
        "list of object",
        "the biggest",
        _f("begin", "int", "blocks before the run"),
        _f("end", "int", "its last block, counted from 1"),
        _f("blocks", "int", "in the run"),
        _f("tokens", "int", "from the first block of all to the run's last"),
        _f("holders", "list of object", "who holds it and all before it", _POD, _RANK),
        _f("continuations", "int", "ways on behind it"),
        _f("last_block", "text", "the first holder's name for its last block"),
        _f("model", "text"),
        _f("lora?", "text", "absent: the base model"),
        _f("above?", "int", "place in this list of the run that it goes on from"),
    ),
)


def report_shape(index: tuple[Field, ...]) -> Shape:
    """The report, with the fields of an index as they are elsewhere."""
    return Shape(
        "one object; times are engine clocks, seconds since the epoch, where not said",
        (
            _f("sources", "list of text", "the captures"),
            _f("kvctl", "text", "the version that made it"),
            _f("made", "float", "our clock"),
            _f("begin?", "float", "the first batch"),
            _f("end?", "float", "the last"),
            _f("headline", "text", "the report in a few sentences"),
            _f("batches", "int"),
            _f("events", "map of int", "by type; `unknown` for all unknown ones"),
            _f("blocks_stored", "int", "repeated ones included"),
            _f("undecodable", "int", "batches"),
            _f("findings", "list of object", "the most severe first", *_FINDING),
            _f("wipes", "list of object", "clears and restarts", *_WIPE),
            _f("gaps", "list of object", "", *_GAP),
            _f("doubts", "list of object", "what losses left unsure", *_DOUBT),
            _f(
                "stored_again",
                "list of object",
                "batches that stored anew what the index held, without a loss",
                _POD,
                _RANK,
                _f("seq", "int"),
                _f("at", "float"),
                _f("blocks", "int"),
            ),
            _f(
                "notes",
                "list of object",
                "",
                _POD,
                _f("rank?", "int", "absent: the pod as a whole"),
                _f("received", "float", "our clock"),
                _f("text", "text"),
            ),
            _f("left_out", "map of int", "of the five lists above, how many are only counted"),
            _f("series", "object", "samples over time", *_SERIES),
            _f("prefixes", "object", "what is shared at the end", *_PREFIXES),
            _f("index", "object", "what the index holds at the end", *index),
            _f("warnings", "list of text", "what reading complained of"),
        ),
    )
