"""What commands print with `-o json` and `-o jsonl`, field by field: the reference, as data.

`kvctl explain` shows it, the README quotes that, and a test holds the commands' real output to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvctl.cli.reportshape import report_shape
from kvctl.cli.shape import Shape
from kvctl.cli.shape import described as _f
from kvctl.errors import UsageError

EXIT_CODES = {
    0: "done, and consistent; also where the reader of a pipe went away",
    1: "error: one line on stderr names the thing and what to do",
    2: "the command line or the configuration is wrong",
    3: "drift: a purge is not verified; reconcile found what is stale, or could not rule it out; "
    "indexes differ; a check of doctor failed; reproduce-2287 --expect was not met",
    130: "interrupted (Ctrl-C, SIGTERM), after finishing files and summary",
}

_POD = _f("pod", "text", "the pod's name")
_RANK = _f("rank", "int", "its DP rank")
_RANK_IF_TOLD = _f("rank?", "int", "its DP rank, where the index tells ranks apart")
_GAP = (
    _POD,
    _RANK,
    _f("from_seq", "int", "the first batch that is missing"),
    _f("to_seq", "int", "the last one (inclusive)"),
    _f("recovered", "bool", "whether the replay brought them after all"),
    _f("reason", "text", "`cold start` where we came when the stream had begun"),
)
_RESTART = (
    _POD,
    _RANK,
    _f("last_seq", "int or null", "the last batch of the old life"),
    _f("reason", "text", "what showed it"),
)
_INDEX = (
    _f("blocks", "int", "distinct blocks, by content"),
    _f("entries", "int", "entries of all pods"),
    _f(
        "pods",
        "map of object",
        "by pod",
        _f("entries", "int"),
        _f("unanchored", "int", "entries whose chain to the root is not known"),
        _f("models", "map of int", "entries by model"),
        _f("media", "map of int", "by medium"),
        _f("loras", "map of int", "by LoRA; the base model's are not counted here"),
        _f("ranks", "map of int", "by DP rank"),
    ),
)
_ROUTER = _f(
    "router?",
    "object",
    "what a router that looks at loads went by",
    _f("rule", "text", "which rule decided"),
    _f(
        "pods",
        "map of object",
        "by pod",
        _f("blocks", "int"),
        _f("percent", "int"),
        _f("running", "int or null", "requests it was said to run"),
        _f("candidate", "bool", "whether it was among those chosen from"),
    ),
    _f("mean?", "float", "of the running requests"),
    _f("deviation?", "float", "their standard deviation"),
)
_MATCH = (
    _f("prompt_blocks", "int", "whole blocks of the prompt"),
    _f(
        "pods",
        "map of object",
        "by pod",
        _f("blocks", "int", "leading blocks of the prompt held in GPU memory"),
        _f("tokens", "int", "their tokens"),
        _f("percent", "int", "their share of the prompt's blocks, rounded down"),
        _RANK_IF_TOLD,
        _f("blocks_any_medium?", "int", "with offloaded blocks, where that is more"),
    ),
    _f("chosen", "text or null", "who would get the prompt"),
    _f("why", "text", "in words"),
    _ROUTER,
)
_ACTION = _f("action", "text", "`reset`, `sleep` or `wake`")
_CONTROL = (
    _POD,
    _ACTION,
    _f(
        "steps",
        "list of object",
        "in order",
        _f("name", "text"),
        _f("ok", "bool or null", "null where it says nothing either way, or was not taken"),
        _f("detail", "text", "the evidence"),
    ),
    _f("entries_before", "int or null", "entries of the pod before the call"),
    _f("entries_after", "int or null", "how many of those are left"),
    _f("verdict", "text", "`verified`, `purged`, `kept`, `awake`, `stale` or `failed`"),
)
_PLANNED = (
    _POD,
    _ACTION,
    _f("dry_run", "bool", "true: nothing was done"),
    _f("api", "text", "URL that would be called"),
    _f("streams", "int", "how many would be watched"),
    _f("level?", "int", "of the sleep"),
    _f("index?", "text", "the index that would be looked at"),
)
_ONE_A_POD = "one object; a list of them for several pods"
_DRIVEN, _DRIVEN_DRY = Shape(_ONE_A_POD, _CONTROL), Shape(_ONE_A_POD, _PLANNED)
_ORIGIN = (_POD, _RANK, _f("topic", "text"), _f("seq", "int", "the batch's number"))
_RECEIVED = _f("recv_ts", "float", "our clock, seconds since the epoch")

SHAPES: Mapping[str, Shape] = {
    "tail": Shape(
        "an object an event; absent on the wire is absent here, but for the parent",
        (
            *_ORIGIN,
            _f("ts", "float", "the engine's clock, seconds since the epoch"),
            _RECEIVED,
            _f("type", "text", "`BlockStored`, `BlockRemoved`, `AllBlocksCleared`, or unknown"),
            _f("block_hashes?", "list of text", "ints in decimal, bytes in lower-case hex"),
            _f("parent_block_hash?", "text or null", "null: the block is the first of a prompt"),
            _f("token_ids?", "list of int", "of the whole span"),
            _f("block_size?", "int", "tokens to a block"),
            _f("lora_id?", "int"),
            _f("lora_name?", "text"),
            _f("medium?", "text", "GPU where absent"),
            _f("extra_keys?", "list of any", "per block, what else its hash is made of"),
            _f("group_idx?", "int", "KV-cache group"),
            _f("kv_cache_spec_kind?", "text", "its kind"),
            _f("kv_cache_spec_sliding_window?", "int", "its window, in tokens"),
            _f("locality?", "text"),
            _f("ownership?", "text"),
            _f("session_id?", "text"),
            _f("lookahead_token_ids?", "any"),
            _f("unknown?", "map of any", "fields that kvctl does not know yet"),
            _f("fields?", "map of any", "of an event type that it does not know"),
        ),
    ),
    "tail Gap": Shape(
        "an object where batches are missing",
        (_f("type", "text", "`Gap`"), _RECEIVED, *_GAP),
    ),
    "tail Restart": Shape(
        "an object where the stream began a new life",
        (_f("type", "text", "`Restart`"), _RECEIVED, *_RESTART),
    ),
    "tail Undecodable": Shape(
        "an object for a batch that cannot be decoded",
        (
            _f("type", "text", "`Undecodable`"),
            *_ORIGIN,
            _RECEIVED,
            _f("error", "text", "what is wrong with it"),
        ),
    ),
    "tail Note": Shape(
        "an object for what is worth telling: a lost connection, a malformed message",
        (
            _f("type", "text", "`Note`"),
            _RECEIVED,
            _POD,
            _f("rank", "int or null", "null: the pod as a whole"),
            _f("text", "text"),
        ),
    ),
    "tail Stats": Shape(
        "an object a pod and interval, with --stats",
        (
            _f("type", "text", "`Stats`"),
            _POD,
            _f("seconds", "float", "since the last ones"),
            _f("batches", "int", "this and the next four: in these seconds"),
            _f("events", "int"),
            _f("blocks_stored", "int"),
            _f("blocks_removed", "int"),
            _f("clears", "int"),
            _f("missing", "int", "batches lost since the beginning"),
            _f("restarts", "int", "since the beginning"),
            _f("last_seq", "int or null"),
        ),
    ),
    "replay": Shape(
        "one object",
        (
            _f("batches", "int"),
            _f("events", "map of int", "by type; `unknown` for all unknown ones"),
            _f("blocks_stored", "int", "block hashes named by stores, repeated ones included"),
            _f("gaps", "list of object", "", *_GAP),
            _f("restarts", "list of object", "", *_RESTART),
            _f("undecodable", "int", "batches"),
            _f("index", "object", "what the index holds at the end", *_INDEX),
            _f("warnings", "list of text", "findings in words"),
            _f("elapsed_s", "float", "seconds the replay took"),
            _f("blocks_per_s", "float"),
            _f("match?", "object", "with --match or --match-block: as `index match`", *_MATCH),
        ),
    ),
    "replay --step": Shape(
        "an object a batch or mark, with -o jsonl",
        (
            _POD,
            _f("rank", "int or null"),
            _f("records", "list of any", "as `tail -o jsonl` prints them"),
            _f("entries", "int", "of the stream, behind it"),
            _f("change", "int", "by how many it changed them"),
        ),
    ),
    "report": report_shape(_INDEX),
    "capture info": Shape(
        "one object",
        (
            _f("source", "text", "the file"),
            _f("size", "int", "bytes"),
            _f("created", "float or null", "our clock, seconds since the epoch"),
            _f("kvctl", "text or null", "the version that wrote it"),
            _f("first_ts", "float or null", "our clock at the first batch, seconds"),
            _f("last_ts", "float or null", "at the last"),
            _f("batches", "int"),
            _f("events", "map of int", "by type"),
            _f("blocks_stored", "int"),
            _f("undecodable", "int", "batches"),
            _f(
                "streams",
                "list of object",
                "",
                _POD,
                _RANK,
                _f("batches", "int"),
                _f("topics", "list of text"),
                _f("first_seq", "int or null"),
                _f("last_seq", "int or null"),
                _f("seq_jumps", "int", "places where the seq leaps ahead"),
                _f("seq_returns", "int", "places where it goes back"),
            ),
            _f("gaps", "list of object", "marks in the file", *_GAP),
            _f("restarts", "list of object", "marks in the file", *_RESTART),
            _f("notes", "int"),
            _f("warnings", "list of text"),
        ),
    ),
    "pods": Shape(
        "one object",
        (
            _f(
                "pods",
                "list of object",
                "a row per DP rank",
                _POD,
                _RANK,
                _f("model?", "text"),
                _f("state", "text", "`awake`, `sleeping-1`, ... as the README lists them"),
                _f("reason", "text", "what the state was read from"),
                _f("reachable", "bool", "whether its HTTP side answered"),
                _f("entries?", "int"),
                _f("capacity?", "int", "blocks its GPU memory can hold"),
                _f("hit_rate?", "float", "of its prefix cache, 0 to 1"),
                _f(
                    "stream?",
                    "object",
                    "",
                    _f("connected", "bool"),
                    _f("replay", "text", "`ok`, `none`, `silent`, `incomplete` or `asking`"),
                    _f("last_seq?", "int"),
                    _f("gaps", "int"),
                    _f("missing", "int", "batches lost"),
                    _f("restarts", "int"),
                    _f("undecodable", "int", "batches"),
                ),
            ),
            _f(
                "skipped?",
                "list of object",
                "pods that Kubernetes has and kvctl cannot use",
                _POD,
                _f("reason", "text"),
            ),
        ),
    ),
    "top": Shape(
        "an object a look",
        (
            _f("at", "float", "our clock, seconds since the epoch"),
            _f(
                "pods",
                "list of object",
                "a row per DP rank",
                _POD,
                _RANK,
                _f("state", "text"),
                _f("events_per_s", "float"),
                _f("stored_per_s", "float", "blocks"),
                _f("removed_per_s", "float", "blocks"),
                _f("entries", "int"),
                _f("capacity?", "int", "blocks its GPU memory can hold"),
                _f("missing", "int", "batches lost"),
                _f("last_clear_s?", "float", "seconds since its last clear"),
                _f("hit_rate?", "float", "0 to 1, since the look before"),
            ),
        ),
    ),
    "doctor": Shape(
        "one object",
        (
            _f(
                "checks",
                "list of object",
                "",
                _f("pod?", "text", "absent: a check of the whole fleet"),
                _f("rank?", "int", "its DP rank; absent: of the whole pod"),
                _f("check", "text", "the check's name"),
                _f("status", "text", "`pass`, `warn`, `fail` or `skip`"),
                _f("detail", "text"),
                _f("remedy?", "text", "what to do"),
            ),
            _f("summary", "map of int", "checks by status"),
        ),
    ),
    "reset": _DRIVEN,
    "reset --dry-run": _DRIVEN_DRY,
    "sleep": _DRIVEN,
    "sleep --dry-run": _DRIVEN_DRY,
    "wake": _DRIVEN,
    "wake --dry-run": _DRIVEN_DRY,
    "index show": Shape("one object", _INDEX),
    "index show --blocks": Shape(
        "a list of objects, or with -o jsonl an object a line; what is not told is absent",
        (
            _POD,
            _RANK_IF_TOLD,
            _f("model?", "text"),
            _f("lora?", "text", "absent: the base model"),
            _f("medium", "text", "GPU, CPU, ..."),
            _f("group?", "int", "KV-cache group"),
            _f("block_hash?", "text", "the engine's name for the block"),
            _f("content?", "text", "kvctl's identity of the block, hex"),
            _f("anchored?", "bool", "whether its chain to the root is known"),
            _f("first_stored?", "float", "engine time, seconds since the epoch"),
            _f("last_stored?", "float"),
            _f("references?", "int", "physical copies"),
            _f("speculative?", "bool", "true: the router only assumes it"),
        ),
    ),
    "index match": Shape("one object", _MATCH),
    "index diff": Shape(
        "one object",
        (
            _f(
                "pods",
                "list of object",
                "",
                _POD,
                _f("only_a", "int", "entries"),
                _f("only_b", "int"),
                _f("both", "int"),
            ),
            _f(
                "differences?",
                "list of object",
                "with --blocks",
                _f("only_in", "text", "`a` or `b`"),
                _POD,
                _f("rank?", "int", "its DP rank, where both indexes tell ranks apart"),
                _f("medium", "text"),
                _f("group", "int"),
                _f("block_hash", "text"),
            ),
        ),
    ),
    "reconcile": Shape(
        "one object; with --watch -o jsonl an object a round",
        (
            _f("at?", "float", "with --watch: our clock, seconds since the epoch"),
            _f("dry_run", "bool"),
            _f(
                "pods",
                "list of object",
                "a row per stream of the index",
                _POD,
                _RANK_IF_TOLD,
                _f("state", "text"),
                _f("entries", "int"),
                _f("stale_entries", "int"),
                _f("verdict", "text", "`purge`, `suspect`, `keep` or `unknown`"),
                _f("reason", "text"),
                _f("evidence", "map of any", "the readings behind it"),
            ),
            _f(
                "summary",
                "object",
                "",
                _f("stale_entries", "int"),
                _f("suspect_entries", "int"),
                _f("purged_entries", "int"),
                _f("unknown", "int", "streams whose engine's state is not known"),
            ),
            _f(
                "resynced?",
                "list of object",
                "after --resync",
                _POD,
                _f("batches", "int", "that the replay brought"),
                _f("lost", "int", "batches that it holds no more"),
            ),
        ),
    ),
    "reproduce-2287": Shape(
        "one object",
        (
            _f(
                "scenarios",
                "list of object",
                "a row per cell",
                *(
                    _CELL := (
                        _f("trigger", "text"),
                        _f("delivery", "text"),
                        _f("handler", "text"),
                        _f("aibrix_scope", "bool"),
                        _f("stale_entries?", "int", "absent through a gateway"),
                        _f("routed_to", "text"),
                        _f("cold_miss", "bool", "by the pod's own counters"),
                        _f("hit_tokens", "int", "of the prompt, that the pod had cached"),
                        _f("lost_tokens", "int", "that the other pod had beyond that"),
                        _f("rule", "text", "what the router went by"),
                        _f("verdict", "text", "`bug` where the other pod had more of the prompt"),
                    )
                ),
            ),
            _f("reproduced", "bool", "whether the bug showed"),
            _f("wrong_purge?", "object", "the cell of a purge at sleep level 0", *_CELL),
        ),
    ),
    "sim": Shape(
        "one line once all are ready",
        (
            _f(
                "pods",
                "list of object",
                "",
                _f("name", "text"),
                _f("api", "text", "URL"),
                _f("events", "list of text", "endpoints, one per DP rank"),
                _f("replay", "list of text", "endpoints, one per DP rank"),
            ),
        ),
    ),
}
"""By command, in the order of `kvctl --help`."""


def shapes_of(command: str) -> dict[str, Shape]:
    """The shapes of a command (`index match`) or of all under a name (`index`, `tail`).

    Raises `UsageError` that lists the commands.
    """
    found = {
        name: shape
        for name, shape in SHAPES.items()
        if name == command or name.startswith(f"{command} ")
    }
    if not found:
        commands = dict.fromkeys(name.split(" --")[0] for name in SHAPES if " " not in name)
        raise UsageError(
            f"there is no JSON of {command!r} to explain",
            remedy=f"choose one of {', '.join(commands)}, index, capture",
        )
    return found
