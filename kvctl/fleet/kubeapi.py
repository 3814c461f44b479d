"""Kubernetes' API as far as it concerns pods: listed to the end, and watched."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from kvctl.fleet.kubeconfig import Cluster
from kvctl.fleet.kubefaults import ExpiredError, Faults, Verb
from kvctl.fleet.kubepod import KubePod, Metadata
from kvctl.text import exchange

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

_log = logging.getLogger(__name__)

PAGE = 500
"""Pods of one page of a list, as kubectl asks for."""

WATCH_S = 240
"""Seconds after which the server is asked to end a watch, so that a dead one is noticed."""

CONNECT_S = 10.0
READ_S = 30.0

MAX_LINE = 16 * 1024 * 1024
"""Largest event of a watch, in bytes. What etcd holds has 1.5 MiB at most."""

_LISTS = 3


@dataclass(frozen=True)
class Change:
    """One event of a watch. ``version`` is the resourceVersion behind it, to go on from.

    ``pod`` is None for a bookmark, which moves the version and nothing else.
    """

    version: str
    pod: KubePod | None = None
    gone: bool = False


class _ListMetadata(msgspec.Struct, frozen=True):
    version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class _PodList(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: list[KubePod]


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: Metadata


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class PodsApi:
    """The pods of one namespace, or of all (``namespace`` None), that a selector matches.

    Methods raise `KubernetesError`, and `UsageError` for a selector that the server cannot read.
    """

    def __init__(self, cluster: Cluster, namespace: str | None, selector: str | None) -> None:
        from kubernetes.client import CoreV1Api

        self.faults = Faults(cluster.who, cluster.server, namespace, selector)
        self._api: CoreV1Api = CoreV1Api(cluster.client)

    def read_all(self) -> tuple[list[KubePod], str]:
        """Every pod, and the resourceVersion at which it was so."""
        for _ in range(_LISTS - 1):
            with suppress(ExpiredError):  # between two pages
                return self._list()
        return self._list()

    def watch(self, version: str) -> Watching:
        """The changes since ``version``."""
        asked = {
            "watch": True,
            "allow_watch_bookmarks": True,
            "resource_version": version,
            "timeout_seconds": WATCH_S,
        }
        return Watching(self._request("watch", asked, WATCH_S + READ_S), self.faults)

    def _list(self) -> tuple[list[KubePod], str]:
        pods: list[KubePod] = []
        asked: dict[str, Any] = {"limit": PAGE}
        while True:
            body = self._read(self._request("list", asked, READ_S))
            try:
                page = msgspec.json.decode(body, type=_PodList)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise self.faults.garbled(error) from None
            pods += page.items
            if not page.metadata.token:
                return pods, page.metadata.version
            asked["_continue"] = page.metadata.token

    def _request(
        self, verb: Verb, asked: Mapping[str, Any], read_timeout: float
    ) -> urllib3.HTTPResponse:
        options = {
            **asked,
            "_preload_content": False,
            "_request_timeout": (CONNECT_S, read_timeout),
        }
        if self.faults.selector is not None:
            options["label_selector"] = self.faults.selector
        from kubernetes.client.exceptions import ApiException

        began = time.monotonic()
        try:
            response: urllib3.HTTPResponse = (
                self._api.list_pod_for_all_namespaces(**options)
                if self.faults.namespace is None
                else self._api.list_namespaced_pod(self.faults.namespace, **options)
            )
        except HTTPError as error:
            self._told_of(verb, "failed", began)
            raise self.faults.unreachable(error) from None
        except ApiException as error:
            self._told_of(verb, str(error.status or "failed"), began)
            if isinstance(error.__context__, HTTPError):  # so it does with what TLS complains of
                raise self.faults.unreachable(error.__context__) from None
            # Some releases of the client raise, others hand over whatever was answered.
            body = error.body if isinstance(error.body, bytes) else str(error.body or "").encode()
            raise self.faults.refused(verb, error.status or 0, body) from None
        self._told_of(verb, str(response.status), began)
        if response.status != HTTPStatus.OK:
            raise self.faults.refused(verb, response.status, self._read(response))
        return response

    def _told_of(self, verb: Verb, how: str, began: float) -> None:
        place = "" if self.faults.namespace is None else f"/namespaces/{self.faults.namespace}"
        asked = {"watch": "1"} if verb == "watch" else {}
        if self.faults.selector is not None:
            asked["labelSelector"] = self.faults.selector
        query = f"?{urlencode(asked, safe=',=!')}" if asked else ""
        url = f"{self.faults.server}/api/v1{place}/pods{query}"
        _log.debug(exchange("GET", url, how, time.monotonic() - began))

    def _read(self, response: urllib3.HTTPResponse) -> bytes:
        try:
            return response.read(decode_content=True)
        except HTTPError as error:
            raise self.faults.unreachable(error) from None
        finally:
            response.release_conn()
            response.close()


class Watching:
    """A watch under way: iterate over its changes, once. `close` ends it, from any thread."""

    def __init__(self, response: urllib3.HTTPResponse, faults: Faults) -> None:
        self._response = response
        self._faults = faults

    def __iter__(self) -> Iterator[Change]:
        """The changes, until the server ends the watch. Raises `KubernetesError`."""
        try:
            for line in _lines(self._response):
                yield self._change(line)
        except HTTPError as error:
            raise self._faults.unreachable(error) from None
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._faults.garbled(error) from None
        finally:
            self._response.close()

    def close(self) -> None:
        """End the watch: whoever iterates over it comes to its end, or to an error."""
        with suppress(RuntimeError, ValueError, OSError):  # it has ended already
            self._response.shutdown()

    def _change(self, line: bytes) -> Change:
        event = msgspec.json.decode(line, type=_Event)
        body = bytes(event.object)
        if event.type == "ERROR":
            raise self._faults.refused("watch", msgspec.json.decode(body, type=_Status).code, body)
        if event.type == "BOOKMARK":
            return Change(msgspec.json.decode(body, type=_Bookmark).metadata.resource_version)
        pod = msgspec.json.decode(body, type=KubePod)
        return Change(pod.metadata.resource_version, pod, gone=event.type == "DELETED")


def _lines(response: urllib3.HTTPResponse) -> Iterator[bytes]:
    """The lines of a body as they come; one that is cut off at the end is no line."""
    rest = bytearray()
    for chunk in response.stream(amt=None, decode_content=True):
        searched = len(rest)
        rest += chunk
        while (end := rest.find(b"\n", searched)) >= 0:
            line = bytes(rest[:end])
            del rest[: end + 1]
            searched = 0
            if line.strip():
                yield line
        if len(rest) > MAX_LINE:
            raise msgspec.DecodeError(f"an event of more than {MAX_LINE} bytes")
