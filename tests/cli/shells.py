"""Real shells in a terminal, with kvctl's completion loaded as it is shipped."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import pyte

ROOT = Path(__file__).parents[2]
SHIPPED = {"bash": "kvctl.bash", "zsh": "_kvctl", "fish": "kvctl.fish"}
PROMPT = "ready> "
PATIENCE = 20.0
TAB = "\t"

_START = {
    "bash": "PS1='{prompt}'; bind 'set bell-style none'; bind 'set completion-query-items 0'; "
    "bind 'set page-completions off'; bind 'set show-all-if-ambiguous on'; "
    "bind 'set enable-bracketed-paste off'",
    "zsh": "PS1='{prompt}'; PROMPT_EOL_MARK=; setopt no_beep no_list_ambiguous; "
    "unset zle_bracketed_paste",
    "fish": "function fish_prompt; echo -n '{prompt}'; end; function fish_greeting; end; "
    "set -g fish_autosuggestion_enabled 0",
}
_LOAD = {
    "bash": "source {script}",
    "zsh": "autoload -Uz compinit; compinit -u -d {home}/zcompdump; source {script}",
    "fish": "source {script}",
}
_INSTALLED = {"bash": ["-i"], "zsh": ["-i"], "fish": ["-i"]}

# How many it takes until all is shown.
_TABS = {"bash": 1, "zsh": 1, "fish": 2}

_COMMAND = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}


class Shell:
    """One shell at its prompt. ``env`` is added to an otherwise clean environment.

    With ``installed`` its own start-up files load the completion, else we do.
    """

    def __init__(
        self, name: str, home: Path, cwd: Path, env: dict[str, str], *, installed: bool = False
    ) -> None:
        binaries = home / "bin"
        binaries.mkdir(parents=True, exist_ok=True)
        kvctl = binaries / "kvctl"
        kvctl.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvctl "$@"\n')
        kvctl.chmod(0o755)
        self.name = name
        self.screen = pyte.Screen(100, 40)
        self._stream = pyte.ByteStream(self.screen)
        self._child = pexpect.spawn(
            shutil.which(name) or name,
            _INSTALLED[name] if installed else _COMMAND[name],
            env={
                "PATH": f"{binaries}:/usr/bin:/bin",
                "HOME": str(home),
                "TERM": "xterm",
                "LANG": "C.UTF-8",
                "PYTHONWARNINGS": "error",
            }
            | env,
            cwd=str(cwd),
            dimensions=(40, 100),
            timeout=PATIENCE,
        )
        script = ROOT / "completions" / SHIPPED[name]
        start = _START[name].format(prompt=PROMPT)
        if not installed:
            start += f"; {_LOAD[name].format(script=script, home=home)}"
        self._child.send(f" {start}\r clear\r")
        self._wait(lambda: self._line == PROMPT.rstrip() and self.text.count("ready>") == 1)

    @property
    def text(self) -> str:
        """All that the screen shows."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def _line(self) -> str:
        """The line the cursor is on, from its prompt."""
        return self.screen.display[self.screen.cursor.y].rstrip()

    def becomes(self, typed: str, wanted: str) -> None:
        """The line that was typed becomes another with one Tab; a space at its end counts."""
        self._clear()
        self._child.send(f"{typed}{TAB}@")
        line = f"{PROMPT}{wanted}@"
        self._wait(lambda: self._line.endswith("@"), f"{wanted!r} of {typed!r}")
        assert self._line == line, f"{self._line!r}, not {line!r}"

    def offers(self, typed: str, *wanted: str) -> str:
        """With Tabs, all of these are offered; returns what else the screen shows."""
        self._clear()
        self._child.send(f"{typed}{TAB * _TABS[self.name]}")
        self._wait(lambda: all(each in self.text for each in wanted), f"{wanted} for {typed!r}")
        return self.text

    def offers_nothing(self, typed: str) -> None:
        """Tabs change nothing, and nothing is printed."""
        self._clear()
        self._child.send(f"{typed}{TAB}{TAB}@")
        self._wait(lambda: "@" in self._line, f"an end of {typed!r}")
        assert self.text.strip() == f"{PROMPT}{typed}@", self.text

    def runs(self, command: str, wanted: str) -> None:
        """What a command prints contains the text."""
        self._clear()
        self._child.send(f"{command}\r")
        self._wait(lambda: wanted in self.text, wanted)

    def close(self) -> None:
        self._child.close(force=True)

    def _clear(self) -> None:
        for _ in range(5):
            self._child.send("\x03")  # Ctrl-C gives the line up, or what is being completed
            if self._until(lambda: self._line == PROMPT.strip(), 1.0):
                break
        self._child.send("clear\r")
        self._wait(lambda: self.text.strip() == PROMPT.strip(), "an empty screen")

    def _settle(self) -> None:
        while self._read(0.05):
            pass

    def _read(self, timeout: float) -> bool:
        try:
            data = self._child.read_nonblocking(65536, timeout=timeout)
        except pexpect.TIMEOUT:
            return False
        self._stream.feed(data)
        return True

    def _wait(self, condition: Callable[[], bool], what: str = "the prompt") -> None:
        assert self._until(condition, PATIENCE), f"{self.name}: no {what} on:\n{self.text}"
        self._settle()

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._read(0.02)
        return True
