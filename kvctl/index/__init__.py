"""The prefix index: which pod holds which blocks."""

from kvctl.index.memory import Counters, MemoryIndex
from kvctl.index.model import GPU, Entry, IndexSummary, PodMatch, Prompt, StreamSummary
from kvctl.index.policy import POLICIES, Policy, Removals, policy

__all__ = [
    "GPU",
    "POLICIES",
    "Counters",
    "Entry",
    "IndexSummary",
    "MemoryIndex",
    "PodMatch",
    "Policy",
    "Prompt",
    "Removals",
    "StreamSummary",
    "policy",
]
