"""What can be wrong with a message on the wire."""

from __future__ import annotations

from kvctl.errors import KvctlError


class DecodeError(KvctlError):
    """A message that is not a batch of KV events.

    ``reason`` is the bare reason. ``event`` is the index of the event in its batch and ``field``
    the path inside the event, where the fault can be placed so exactly; ``pod`` and ``seq`` are
    filled in by `located` once they are known.
    """

    def __init__(
        self,
        reason: str,
        *,
        event: int | None = None,
        field: str = "",
        pod: str = "",
        seq: int | None = None,
    ) -> None:
        self.reason = reason
        self.event = event
        self.field = field
        self.pod = pod
        self.seq = seq
        where = [f"pod {pod}"] if pod else []
        if seq is not None:
            where.append(f"seq {seq}")
        super().__init__(f"{', '.join(where)}: {self.detail}" if where else self.detail)

    @property
    def detail(self) -> str:
        """The reason with the event's number and the field, without pod and seq."""
        where = [] if self.event is None else [f"event {self.event}"]
        if self.field:
            where.append(f"field {self.field}")
        return f"{', '.join(where)}: {self.reason}" if where else self.reason

    def located(self, pod: str, seq: int | None) -> DecodeError:
        """The same error, naming the pod and the seq of the message."""
        return DecodeError(self.reason, event=self.event, field=self.field, pod=pod, seq=seq)
