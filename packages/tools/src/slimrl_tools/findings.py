"""Defines the findings of `doctor` and `check`, and shows them as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.table import Table
from rich.text import Text

from slimrl.errors import visible
from slimrl.monitor.tables import empty_table

MAX_CHARS = 600  # maximum length of a printed text, which may be from other programs
STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"  # nothing is wrong
    NOTE = "note"  # it works but could be better, or could not be checked
    PROBLEM = "problem"  # something is broken


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a subject. `remedy` is often a command. It is empty if there is nothing to do."""

    subject: str
    level: Level
    found: str
    remedy: str = ""


def has_problem(findings: Sequence[Finding]) -> bool:
    """Return True if one of the findings is a problem."""
    return any(one.level is Level.PROBLEM for one in findings)


def findings_table(title: str, findings: Sequence[Finding], live: bool) -> Table:
    """Return the findings as a rich table, in the given order. The frame is ASCII if `live` is false."""
    table = empty_table(title, live, show_header=False)
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
    """Return a text with the number of findings of each level.

    >>> summary([Finding("a", Level.OK, ""), Finding("b", Level.NOTE, ""), Finding("c", Level.OK, "")])
    '2 ok, 1 note, no problem'
    """
    num = {level: sum(one.level is level for one in findings) for level in Level}
    notes = f"{num[Level.NOTE]} note{'' if num[Level.NOTE] == 1 else 's'}"
    problems = {0: "no problem", 1: "1 problem"}.get(num[Level.PROBLEM], f"{num[Level.PROBLEM]} problems")
    return f"{num[Level.OK]} ok, {notes}, {problems}"
