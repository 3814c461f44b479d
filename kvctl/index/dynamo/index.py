"""A live Dynamo indexer as an index: read through its dump, purged by registering anew."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kvctl.index.dynamo.answers import Worker
from kvctl.index.dynamo.client import DynamoClient, StatusError
from kvctl.index.errors import IndexStoreError
from kvctl.index.model import (
    Entry,
    IndexSummary,
    PodMatch,
    Prompt,
    StreamFacts,
    StreamSummary,
    Traits,
)

_TIMEOUT_S = 30.0
_MEDIA = {"device": "GPU", "host": "CPU", "host_pinned": "CPU", "disk": "STORAGE"}


class DynamoIndex:
    """The entries of a standalone indexer at `dynamo+http://HOST:PORT`.

    ``names`` gives pods their names by the endpoint of their events, or by Dynamo's instance id;
    ``replays`` the replay endpoint by that of the events: Dynamo does not tell it, and a worker is
    registered anew with it. Raises `IndexStoreError`.
    """

    traits = Traits(contents=False, groups=False, times=False, pod_names=False)

    def __init__(
        self,
        url: str,
        *,
        names: Mapping[str, str] | None = None,
        replays: Mapping[str, str] | None = None,
        timeout: float = _TIMEOUT_S,
    ) -> None:
        self._client = DynamoClient(url, timeout)
        self._url = url
        self._names = dict(names or {})
        self._replays = dict(replays or {})
        self._remarks: list[str] = []

    def __enter__(self) -> DynamoIndex:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def summary(self) -> IndexSummary:
        """Counts per worker and DP rank, those without entries too."""
        workers = self._client.workers()
        models = {self._pod(worker): worker.model_name for worker in workers}
        media: dict[tuple[str, int], Counter[str]] = {
            (self._pod(worker), rank): Counter() for worker in workers for rank in worker.ranks()
        }
        blocks: set[tuple[str, object]] = set()
        for entry in self._entries(workers):
            media.setdefault((entry.pod, entry.rank or 0), Counter())[entry.medium] += 1
            models.setdefault(entry.pod, entry.model)
            blocks.add((entry.model, entry.block_hash))
        streams = tuple(
            StreamSummary(pod, rank, models[pod], sum(of.values()), 0, dict(of), {}, None)
            for (pod, rank), of in sorted(media.items())
        )
        return IndexSummary(len(blocks), streams)

    def entries(self, pod: str | None = None) -> Iterator[Entry]:
        """Every entry, of one pod or of all."""
        for entry in self._entries(self._client.workers()):
            if pod is None or entry.pod == pod:
                yield entry

    def match(self, prompt: Prompt) -> dict[str, PodMatch]:
        """Per pod, how many leading blocks of the prompt it holds, asked of the indexer itself."""
        workers = self._client.workers()
        more: dict[str, Any] = {}
        if prompt.lora is not None:
            more["lora_name"] = prompt.lora
        salts = [key for key in prompt.first_extra_keys if isinstance(key, str)]
        if salts:
            more["cache_salt"] = salts[0]
        found: dict[str, PodMatch] = {}
        for model, group in dict.fromkeys((w.model_name, w.routing_group) for w in workers):
            if prompt.model not in (None, model):
                continue
            answer = self._client.query(
                {
                    "token_ids": list(prompt.token_ids),
                    "model_name": model,
                    "routing_group": group,
                    **more,
                }
            )
            for worker in workers:
                if (worker.model_name, worker.routing_group) != (model, group):
                    continue
                size, pod = worker.block_size, self._pod(worker)
                name = str(worker.instance_id)
                ranks = answer.scores.get(name, {})
                rank, tokens = max(
                    ((int(rank), tokens) for rank, tokens in ranks.items()),
                    key=lambda each: (each[1], -each[0]),
                    default=(0, 0),
                )
                instance = answer.instances.get(name)
                in_gpu = tokens if instance is None else min(tokens, instance.gpu)
                anywhere = tokens if instance is None else max(tokens, instance.longest_matched)
                match = PodMatch(
                    pod,
                    rank,
                    len(prompt.token_ids) // size,
                    in_gpu // size,
                    anywhere // size,
                    size,
                )
                if pod not in found or match.blocks > found[pod].blocks:
                    found[pod] = match
        return found

    def facts(self) -> list[StreamFacts]:
        """How many entries each DP rank has, and the block size it is counted in."""
        sizes = {self._pod(each): each.block_size for each in self._client.workers()}
        return [
            StreamFacts(each.pod, each.rank, each.entries, block_size=sizes.get(each.pod))
            for each in self.summary().streams
        ]

    def stored_before(self, pod: str, rank: int | None, cutoff: float | None) -> int:
        """How many entries a pod (one DP rank of it) has. No time can be asked for."""
        self._refuse(cutoff)
        return sum(1 for entry in self.entries(pod) if rank is None or entry.rank == rank)

    def purge(self, pod: str, rank: int | None = None, *, before: float | None = None) -> int:
        """Unregister a pod's workers (one DP rank of them) and register them anew.

        Dynamo then asks the replay for what it has missed as soon as the engine publishes again,
        which brings back what is still true. Returns how many entries there were.
        """
        self._refuse(before)
        held = self.stored_before(pod, rank, None)
        for worker in self._client.workers():
            if self._pod(worker) == pod:
                for each in worker.ranks():
                    if rank in (None, each):
                        self._renew(worker, each)
        return held

    def remarks(self) -> list[str]:
        """What a purge could not bring back as it was."""
        return list(self._remarks)

    def close(self) -> None:
        """Let go."""
        self._client.close()

    def _renew(self, worker: Worker, rank: int) -> None:
        endpoint = worker.endpoints[str(rank)]
        known = {
            "instance_id": worker.instance_id,
            "model_name": worker.model_name,
            "routing_group": worker.routing_group,
            "dp_rank": rank,
        }
        again = {**known, "endpoint": endpoint, "block_size": worker.block_size}
        replay = self._replays.get(endpoint)
        if replay is not None:
            again["replay_endpoint"] = replay
        else:
            self._remarks.append(
                f"worker {worker.instance_id} rank {rank} is registered without a replay endpoint: "
                "Dynamo does not tell it, and no pod of the fleet has its events"
            )
        try:
            self._client.unregister(known)
        except StatusError as error:
            if error.status != 404:  # gone by now: somebody else is at it
                raise
        try:
            self._client.register(again)
        except IndexStoreError as error:
            raise IndexStoreError(
                f"worker {worker.instance_id} rank {rank} was unregistered from {self._url}, and "
                f"could not be registered again: {error.message}",
                remedy=f"POST /register {json.dumps(again)}",
            ) from None

    def _entries(self, workers: list[Worker]) -> Iterator[Entry]:
        pods = {worker.instance_id: self._pod(worker) for worker in workers}
        for key, dump in self._client.dump().items():
            model = key.rpartition(":")[0]
            for told in dump.events:
                stored = told.event.data.stored
                for block in stored.blocks if stored is not None else ():
                    yield Entry(
                        pods.get(told.worker_id, _unnamed(told.worker_id)),
                        told.event.dp_rank,
                        model,
                        None,
                        _MEDIA.get(told.storage_tier, told.storage_tier.upper()),
                        0,
                        block.block_hash,
                        None,
                        True,
                        None,
                        None,
                        1,
                    )

    def _pod(self, worker: Worker) -> str:
        for word in (*worker.endpoints.values(), str(worker.instance_id)):
            if word in self._names:
                return self._names[word]
        return _unnamed(worker.instance_id)

    def _refuse(self, cutoff: float | None) -> None:
        if cutoff is not None:
            raise IndexStoreError(f"{self._url} tells no times: only all of a pod can be meant")


def _unnamed(instance: int) -> str:
    return f"dynamo/{instance}"
