"""The family of errors a person can meet: each has a sentence, a next step and an exit code."""

from __future__ import annotations


class KvctlError(Exception):
    """Base of every error kvctl raises on purpose.

    ``message`` is one sentence that names the thing that is wrong; ``remedy`` says what to do
    about it, and is printed behind it. ``exit_code`` is what the process ends with
    (1 error, 2 usage).
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class UsageError(KvctlError):
    """The words of the command line or of the configuration do not fit."""

    exit_code = 2
