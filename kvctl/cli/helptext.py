"""A command's docstring -> its help: prose for any width, and examples as they are typed."""

from __future__ import annotations

import inspect

_HEADING = "Examples:"


def split_docstring(text: str) -> tuple[str, tuple[str, ...]]:
    """The prose, a line per paragraph, and the examples.

    The examples are the indented lines behind `Examples:`, which ends the docstring. One that is
    too long for a line goes on in the next where it ends in a backslash, as in a shell.
    """
    prose, _, told = inspect.cleandoc(text).partition(f"\n{_HEADING}\n")
    paragraphs = (" ".join(paragraph.split()) for paragraph in prose.split("\n\n"))
    examples: list[str] = []
    for line in inspect.cleandoc(told).splitlines():
        if examples and examples[-1].endswith("\\"):
            examples[-1] += f"\n{line}"
        elif line.strip():
            examples.append(line)
    return "\n\n".join(filter(None, paragraphs)), tuple(examples)


def print_examples(examples: tuple[str, ...]) -> None:
    """The examples on stdout: no frame, nothing broken, to be copied as they are."""
    from kvctl.cli.output import stdout_console

    console = stdout_console()
    console.print(" Examples", style="bold")
    for example in examples:
        for line in example.splitlines():
            console.print(f"   {line}", soft_wrap=True)
    console.print()
