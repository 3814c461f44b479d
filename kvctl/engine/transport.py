"""One HTTP exchange with an engine: bounded in time and size."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import requests
import urllib3
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from kvctl.engine.answers import Reply
from kvctl.engine.deadline import Deadline, WatchedAdapter
from kvctl.engine.errors import NotAnEngine
from kvctl.engine.faults import Attempt, explain, too_late
from kvctl.text import exchange

MAX_BODY = 16 * 1024 * 1024
"""Largest answer that is read, in bytes."""

_CHUNK = 64 * 1024
_log = logging.getLogger(__name__)


class _Authorization(AuthBase):
    """The token, or none at all: without an auth of ours requests would look into ~/.netrc."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Transport:
    """Sends requests to one engine.

    Each exchange has a connection of its own: one kept from before may have died since, and then
    nobody knows whether a reset sent over it arrived. Redirects are not followed, so the token
    goes to no host but the pod's. Proxies and CA bundles of the environment are used as requests
    does, except that a loopback address is never asked for through a proxy. ``via`` is the base
    URL to call for ``base_url``, if it is another.
    """

    def __init__(
        self,
        pod: str,
        base_url: str,
        *,
        api_key: str | None,
        verify: bool | str,
        via: str | None = None,
    ) -> None:
        self.pod = pod
        self.base_url = base_url.rstrip("/")
        self._called = (via or base_url).rstrip("/")
        self._key = api_key
        self._authorization = _Authorization(api_key)
        self._verify = verify
        host = urlsplit(self._called).hostname or ""
        self._proxies = {"no_proxy": host} if _is_loopback(host) else None
        if verify is False:
            urllib3.disable_warnings(InsecureRequestWarning)  # it was told so

    def exchange(
        self,
        method: str,
        path: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        body: Any = None,
        timeout: float,
        limit: int = MAX_BODY,
    ) -> Reply:
        """The answer to one request, whatever its status, read to the end within ``timeout`` s.

        Raises `Unreachable` or `NotAnEngine`.
        """
        call = f"{method} {path}"
        began = time.monotonic()
        url = f"{self.base_url}{path}{_query(params)}"
        with Deadline(timeout) as deadline, requests.Session() as session:
            adapter = WatchedAdapter()
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            try:
                with session.request(
                    method,
                    self._called + path,
                    params=list(params),
                    json=body,
                    auth=self._authorization,
                    headers={"Accept-Encoding": "identity", "Connection": "close"},
                    timeout=deadline.remaining,
                    verify=self._verify,
                    proxies=self._proxies,
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    content = self._read(response, limit, call)
            except (requests.RequestException, HTTPError, OSError, ValueError) as error:
                fault = explain(error, self._attempt(call, deadline))
                _log.debug(exchange(method, url, "failed", time.monotonic() - began))
                raise fault from None
        took = time.monotonic() - began
        _log.debug(exchange(method, url, str(response.status_code), took))
        if deadline.expired:  # a body that ends with its connection looks whole when it was cut
            raise too_late(self._attempt(call, deadline))
        return Reply(
            response.status_code,
            self._without_key(content),
            response.headers.get("Content-Type", ""),
            self._without_key(response.headers.get("Location", "").encode()).decode(),
            response.headers.get("Date", ""),
        )

    def _attempt(self, call: str, deadline: Deadline) -> Attempt:
        return Attempt(
            self.pod, call, self.base_url, deadline.seconds, deadline.connected, deadline.expired
        )

    def _without_key(self, content: bytes) -> bytes:
        """The content, should a server have put our token into it: what it says gets printed."""
        return content.replace(self._key.encode(), b"***") if self._key else content

    def _read(self, response: requests.Response, limit: int, call: str) -> bytes:
        content = bytearray()
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            content += chunk
            if len(content) > limit:
                raise NotAnEngine(
                    self.pod, call, f"an answer of more than {limit} bytes", sent=True
                )
        return bytes(content)


def _query(params: Sequence[tuple[str, str]]) -> str:
    return f"?{urlencode(params)}" if params else ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
