"""AIBrix's prefix-cache choice with KV event sync, as a model.

Its rules are those of its gateway (routing algorithm `prefix-cache`): a gate against imbalance, the
match by a walk over the prompt's blocks, a bound on the load of the pod that matches best, and the
least loaded pod where none is left. The prompt then counts as held by the pod that got it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from kvctl.router.choice import Choice, Standing

PREFIX = "prefix match"
LEAST_LOADED = "least running requests"


@dataclass(frozen=True)
class Constants:
    """What AIBrix takes from its environment.

    ``imbalance``: with a wider spread of running requests, only the least loaded pods are
    candidates (AIBRIX_PREFIX_CACHE_POD_RUNNING_REQUEST_IMBALANCE_ABS_COUNT). ``deviation_factor``:
    a pod may be so many standard deviations above the mean
    (AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR).
    """

    imbalance: int = 8
    deviation_factor: float = 1.0


class AibrixRouter:
    """One gateway: its random source, and what it assumes of the prompts it sent away.

    Blocks are named by anything that can be a key. The same seed and calls bring the same choices.
    """

    def __init__(self, seed: int = 0, constants: Constants | None = None) -> None:
        self._random = Random(seed)
        self._constants = constants or Constants()
        self._assumed: dict[Hashable, set[str]] = {}

    def route(
        self,
        blocks: Sequence[Hashable],
        holders: Sequence[Collection[str]],
        running: Mapping[str, int],
    ) -> Choice:
        """Choose a pod for a prompt, and assume from now on that it holds the prompt.

        ``holders`` are, for each block of the prompt, the pods that the index says hold it;
        ``running`` the running requests of every pod that is ready.
        """
        known = [
            {*pods, *self._assumed.get(block, ())}
            for block, pods in zip(blocks, holders, strict=True)
        ]
        choice = choose_aibrix(known, running, self._random, self._constants)
        if choice.pod is not None:
            self.assume(blocks, choice.pod)
        return choice

    def assume(self, blocks: Sequence[Hashable], pod: str) -> None:
        """Count the prompt as held by a pod, as is done with each that is sent there."""
        for block in blocks:
            self._assumed.setdefault(block, set()).add(pod)

    def forget(self, pod: str) -> None:
        """Assume nothing of a pod any more: a purge takes this with the entries."""
        for pods in self._assumed.values():
            pods.discard(pod)


def choose_aibrix(
    holders: Sequence[Collection[str]],
    running: Mapping[str, int],
    random: Random,
    constants: Constants | None = None,
) -> Choice:
    """The pod that AIBrix would choose, by the blocks each holds and the requests each runs.

    As there, a pod may lack a block in the middle: the walk asks only that somebody has it.
    """
    from statistics import fmean, pstdev  # slow to load, and seldom needed

    constants = constants or Constants()
    if not running:
        return Choice(None, "no pod is ready")
    least = min(running.values())
    spread = max(running.values()) - least
    gated = spread > constants.imbalance
    candidates = {pod for pod, count in running.items() if not gated or count == least}
    reached = _walk(holders, candidates)
    standings = {
        pod: Standing(
            reached.get(pod, 0),
            reached.get(pod, 0) * 100 // len(holders) if holders else 0,
            count,
            pod in candidates,
        )
        for pod, count in sorted(running.items())
    }
    mean, deviation = fmean(running.values()), pstdev(running.values())
    bound = mean + constants.deviation_factor * deviation
    gate = f"load is uneven by {spread}: only the least loaded are candidates; " if gated else ""

    def told(pod: str, rule: str, why: str) -> Choice:
        return Choice(pod, gate + why, rule, standings, mean, deviation)

    matched = list(reached)
    random.shuffle(matched)
    matched.sort(key=lambda pod: (-standings[pod].percent, running[pod]))
    for pod in matched:
        if running[pod] <= bound:
            return told(pod, PREFIX, _why_matched(pod, matched, standings, bound))
    idle = sorted(pod for pod, count in running.items() if count == least)
    pod = random.choice(idle)
    why = f"it runs {least} requests, as few as any" + (", at random" if len(idle) > 1 else "")
    if matched:
        why = f"{', '.join(matched)} matched, but above the bound of {bound:.1f} requests; {why}"
    else:
        why = f"no candidate holds the first block; {why}"
    return told(pod, LEAST_LOADED, why)


def _walk(holders: Sequence[Collection[str]], candidates: Collection[str]) -> dict[str, int]:
    """How far each candidate got; ends at the first block that none of them holds."""
    reached: dict[str, int] = {}
    for number, pods in enumerate(holders, 1):
        present = [pod for pod in sorted(pods) if pod in candidates]
        if not present:
            break
        for pod in present:
            reached[pod] = number
    return reached


def _why_matched(
    pod: str, matched: Sequence[str], standings: Mapping[str, Standing], bound: float
) -> str:
    place = matched.index(pod)
    mine = standings[pod]
    why = f"matches {mine.percent} % and runs {mine.running}, within the bound of {bound:.1f}"
    if place:
        better = ", ".join(
            f"{each} ({standings[each].percent} %, runs {standings[each].running})"
            for each in matched[:place]
        )
        return f"{why}; above it: {better}"
    ties = [
        each
        for each in matched[1:]
        if (standings[each].percent, standings[each].running) == (mine.percent, mine.running)
    ]
    if ties:
        return f"{why}, as {', '.join(ties)}: at random"
    if len(matched) > 1:
        return f"{why}; next {matched[1]} with {standings[matched[1]].percent} %"
    return why
