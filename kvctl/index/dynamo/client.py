"""The HTTP side of Dynamo's indexer: bounded answers, errors in plain words."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, TypeVar

import requests

from kvctl.errors import UsageError
from kvctl.index.dynamo.answers import Dump, QueryAnswer, Workers, decode
from kvctl.index.errors import IndexStoreError
from kvctl.text import exchange

_SCHEME = "dynamo+"
_LIMIT = 2 * 1024 * 1024 * 1024
"""Longest answer that is read, in bytes: a dump has about 60 a block."""
_CHUNK = 1024 * 1024
_REMEDY = "is it up, and this the port of dynamo.indexer (8090 by default)?"

_log = logging.getLogger(__name__)

T = TypeVar("T")


class StatusError(IndexStoreError):
    """An answer other than 2xx, with its ``status``."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class DynamoClient:
    """Calls one indexer. ``timeout`` is in seconds, for the whole answer.

    Raises `UsageError` for a URL of another kind, `IndexStoreError` for what goes wrong.
    """

    def __init__(self, url: str, timeout: float) -> None:
        base = url.removeprefix(_SCHEME)
        if base == url or not base.startswith(("http://", "https://")):
            raise UsageError(
                f"{url!r} is no URL of Dynamo's indexer", remedy="dynamo+http://…:8090"
            )
        self._base = base.rstrip("/")
        self._timeout = timeout
        self._session = requests.Session()

    def workers(self) -> Workers:
        """The engines it listens to."""
        return self._told("GET", "/workers", Workers)

    def dump(self) -> Dump:
        """Every entry, by model and routing group."""
        return self._told("GET", "/dump", Dump)

    def query(self, body: Mapping[str, Any]) -> QueryAnswer:
        """Who holds how much of a prompt; nobody for a model it does not know."""
        try:
            return self._told("POST", "/query", QueryAnswer, body)
        except StatusError as error:
            if error.status == requests.codes.not_found:
                return QueryAnswer()
            raise

    def unregister(self, body: Mapping[str, Any]) -> None:
        """Stop listening to a worker, and drop its blocks."""
        self._call("POST", "/unregister", body)

    def register(self, body: Mapping[str, Any]) -> None:
        """Listen to a worker; one that is there already is well."""
        try:
            self._call("POST", "/register", body)
        except StatusError as error:
            if error.status != requests.codes.conflict:
                raise

    def close(self) -> None:
        """Let go of the connection."""
        self._session.close()

    def _told(
        self, method: str, path: str, kind: type[T], body: Mapping[str, Any] | None = None
    ) -> T:
        answer = self._call(method, path, body)
        try:
            return decode(answer, kind)
        except ValueError as error:
            raise IndexStoreError(
                f"{self._base}{path} answers what Dynamo's indexer does not: {error}",
                remedy=_REMEDY,
            ) from None

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        began = time.monotonic()
        end = began + self._timeout
        try:
            with self._session.request(
                method, self._base + path, json=body, timeout=self._timeout, stream=True
            ) as answer:
                parts, size = [], 0
                for part in answer.iter_content(_CHUNK):
                    size += len(part)
                    if size > _LIMIT:
                        raise IndexStoreError(
                            f"{self._base}{path} answers more than {_LIMIT} bytes"
                        )
                    if time.monotonic() > end:
                        raise IndexStoreError(
                            f"{self._base}{path} takes more than {self._timeout:g} s"
                        )
                    parts.append(part)
                content = b"".join(parts)
                self._told_of(method, path, str(answer.status_code), began)
                if not answer.ok:
                    said = content[:200].decode(errors="replace").strip()
                    raise StatusError(
                        f"{self._base}{path} answers {answer.status_code}: {said}",
                        answer.status_code,
                    )
                return content
        except requests.RequestException as error:
            self._told_of(method, path, "failed", began)
            raise IndexStoreError(
                f"{self._base} does not answer {method} {path}: {_reason(error)}", remedy=_REMEDY
            ) from None

    def _told_of(self, method: str, path: str, how: str, began: float) -> None:
        _log.debug(exchange(method, self._base + path, how, time.monotonic() - began))


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return type(error).__name__
