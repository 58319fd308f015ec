"""Findings: what a look at something has found, whether that is well, and what to do. `doctor` and `check` print them.

Two of them, as `findings_json` gives them:

    {"subject": "disk", "level": "ok", "found": "55 GB free in outputs", "remedy": ""}
    {"subject": "compiler", "level": "note", "found": "there is none", "remedy": "apt install g++"}
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from slimrl.errors import visible

MAX_CHARS = 600  # of what is shown of a finding: texts of others may be in it
STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"  # as it should be
    NOTE = "note"  # it works, and could be better; or it could not be looked at
    PROBLEM = "problem"  # something is broken


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a subject, and what to do, often a command; `remedy` is empty where nothing is to be done."""

    subject: str
    level: Level
    found: str
    remedy: str = ""


def has_problem(findings: Sequence[Finding]) -> bool:
    """Whether one of the findings is a problem."""
    return any(one.level is Level.PROBLEM for one in findings)


def findings_table(title: str, findings: Sequence[Finding], live: bool) -> Table:
    """The findings as a table for rich, in their order; where `live` is false, its frame is of plain characters."""
    frame = box.ROUNDED if live else box.ASCII2
    table = Table(box=frame, title=title, title_style="bold", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in findings:
        found = Text(visible(one.found, MAX_CHARS))
        if one.remedy:
            found.append(f"\n-> {visible(one.remedy, MAX_CHARS)}", style="bold")
        table.add_row(Text(one.subject), Text(one.level, style=STYLES[one.level]), found)
    return table


def summary(findings: Sequence[Finding]) -> str:
    """The number of findings of each level, in words.

    >>> summary([Finding("a", Level.OK, ""), Finding("b", Level.NOTE, ""), Finding("c", Level.OK, "")])
    '2 ok, 1 note, no problem'
    """
    num = {level: sum(one.level is level for one in findings) for level in Level}
    notes = f"{num[Level.NOTE]} note{'' if num[Level.NOTE] == 1 else 's'}"
    problems = {0: "no problem", 1: "1 problem"}.get(num[Level.PROBLEM], f"{num[Level.PROBLEM]} problems")
    return f"{num[Level.OK]} ok, {notes}, {problems}"


def print_json(value: Any) -> None:
    """Prints JSON on standard output, whose reader may close it early, as `head` does."""
    try:
        print(json.dumps(value, indent=1, ensure_ascii=False), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The findings as JSON takes them."""
    return [asdict(one) for one in findings]
