"""The prefix index: which pod holds which blocks."""

from typing import TYPE_CHECKING

from kvctl.index.errors import IndexStoreError
from kvctl.index.memory import Counters, MemoryIndex
from kvctl.index.model import (
    GPU,
    Entry,
    IndexSummary,
    PodMatch,
    Prompt,
    StreamFacts,
    StreamSummary,
    Traits,
)
from kvctl.index.names import NameIndex
from kvctl.index.policy import POLICIES, Policy, Removals, policy
from kvctl.index.prefixes import PrefixRun, PrefixTree
from kvctl.index.store import IndexStore, IndexView, PurgeableIndex
from kvctl.lazy import exports

if TYPE_CHECKING:
    from kvctl.index.sqlitedb import SqliteIndex

__all__ = [
    "GPU",
    "POLICIES",
    "Counters",
    "Entry",
    "IndexStore",
    "IndexStoreError",
    "IndexSummary",
    "IndexView",
    "MemoryIndex",
    "NameIndex",
    "PodMatch",
    "Policy",
    "PrefixRun",
    "PrefixTree",
    "Prompt",
    "PurgeableIndex",
    "Removals",
    "SqliteIndex",
    "StreamFacts",
    "StreamSummary",
    "Traits",
    "policy",
]

__getattr__ = exports(__name__, {"SqliteIndex": "sqlitedb"})
