"""What can be wrong with a message on the wire."""

from __future__ import annotations

from kvctl.errors import KvctlError


class DecodeError(KvctlError):
    """A message that is not a batch of KV events.

    ``reason`` is the bare reason. ``event`` is the index of the event in its batch and ``field``
    the path inside the event, where the fault can be placed so exactly.
    """

    def __init__(
        self,
        reason: str,
        *,
        event: int | None = None,
        field: str = "",
    ) -> None:
        self.reason = reason
        self.event = event
        self.field = field
        super().__init__(self.detail)

    @property
    def detail(self) -> str:
        """The reason with the event's number and the field."""
        where = [] if self.event is None else [f"event {self.event}"]
        if self.field:
            where.append(f"field {self.field}")
        return f"{', '.join(where)}: {self.reason}" if where else self.reason
