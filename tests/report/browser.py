"""A real Chromium without a window, told what to do over its debugging pipe.

Only what these tests need of the DevTools protocol; no driver and no library besides the browser.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 60.0
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str | None:
    """The browser's path, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page."""

    def __init__(self, folder: Path) -> None:
        path = chromium()
        assert path is not None
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # It reads from descriptor 3 and writes to 4.
        self._process = subprocess.Popen(
            [
                "bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "chromium",
                path, *_OPTIONS, f"--user-data-dir={folder}",
            ],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def open(self, path: Path, *, width: int = 1200, height: int = 900) -> None:
        """Load a file and wait until it is there; ``events`` then has what the loading brought."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.events.clear()
        told = self.call("Page.navigate", url=path.as_uri())
        assert "errorText" not in told, told
        self._wait(lambda: any(e["method"] == "Page.loadEventFired" for e in self.events))

    def media(self, kind: str = "screen", scheme: str = "light") -> None:
        """Screen or print, light or dark."""
        self.call(
            "Emulation.setEmulatedMedia",
            media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}],
        )  # fmt: skip

    def value(self, expression: str) -> Any:
        """What an expression comes to in the page."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def requests(self) -> list[str]:
        """All that was asked for since the page began to load."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What the console said since then."""
        return [
            json.dumps(event["params"])
            for event in self.events
            if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and its answer."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answers: list[dict[str, Any]] = []

        def answered() -> bool:
            answers.extend(each for each in self._answers if each["id"] == number)
            self._answers.clear()
            return bool(answers)

        self._wait(answered)
        assert "error" not in answers[0], answers[0]
        result: dict[str, Any] = answers[0]["result"]
        return result

    _answers: list[dict[str, Any]] = []  # noqa: RUF012 - one browser at a time

    def _wait(self, condition: Any) -> None:
        end = time.monotonic() + _PATIENCE
        while not condition():
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser ended"
            *whole, self._read = (self._read + data).split(b"\0")
            for each in map(json.loads, whole):
                (self._answers if "id" in each else self.events).append(each)
