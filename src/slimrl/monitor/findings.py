"""Defines a finding of an inspection. Plug-ins return findings to `slimrl doctor` (`slimrl.probes`)."""

from dataclasses import dataclass
from enum import StrEnum


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
