"""Reads the lists of English words in `word_lists.toml`. That file explains the role of each list in a comparison."""

import tomllib
from pathlib import Path

WORDS = tomllib.loads(Path(__file__).with_name("word_lists.toml").read_text(encoding="utf-8"))
TURNS, FILLERS, RELATIONS, MODIFIERS, OF_NUMBERS, KINDS, QUALITIES = (
    frozenset(WORDS[name].split())
    for name in ("turns", "fillers", "relations", "modifiers", "of_numbers", "kinds", "qualities")
)
MONTHS = frozenset(name for month in WORDS["months"].split() for name in (month, month[:3]))
COMMON = KINDS | QUALITIES
