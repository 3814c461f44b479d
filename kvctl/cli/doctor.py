"""`kvctl doctor`: is anything wrong with these pods?"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvctl.cli.options import OUTPUT_OPTION, AnswerTimeout
from kvctl.cli.podoptions import (
    NOT_IN_KUBERNETES,
    ContextOption,
    InKubernetes,
    PodNames,
    PodOption,
    names_kubernetes,
)


@names_kubernetes
def doctor(
    names: PodNames = None,
    pod: PodOption = None,
    context: ContextOption = None,
    kubernetes: InKubernetes = NOT_IN_KUBERNETES,
    timeout: AnswerTimeout = 10.0,
    output: Annotated[Literal["table", "json"], OUTPUT_OPTION] = "table",
) -> None:
    """Check pods, and say what to do about what is wrong.

    Exit code 3 where a check fails. Per pod: its API and its control endpoints, its metrics, its
    clock, its state; per stream: events, replay and how long it reaches back, whether AIBrix can
    decode it, the form of its hashes and whether they follow from the tokens, entries above
    capacity. Over all: do block sizes and hashes agree?

    Examples:
      kvctl doctor 10.0.0.7
      kvctl doctor -o json | jq '.checks[] | select(.status == "fail")'
    """
    from kvctl.cli.doctoring import show_checks
    from kvctl.cli.podoptions import context_key, resolve_pods
    from kvctl.operate.doctor import diagnose
    from kvctl.operate.examine import examine

    pods = resolve_pods(names or [], pod or [], context, kubernetes)
    seen = examine(pods, api_key=context_key(context), timeout=timeout)
    if show_checks(diagnose(seen), output):
        raise typer.Exit(3)
