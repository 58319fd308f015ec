"""A tolerant parser that finds a game's names and numbers in free text; and the sentences about scores that scripted
players write. The module does not depend on acts or turns.

Names count in upper or lower case: short, full, first or last names, if they are unambiguous. A misspelt word counts if
it is one edit away from exactly one name. The first letter must be right and the word must be long, so that no English
word is taken for a name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from slimrl_envs.matching_game.rules.deal import Cell, Deal
from slimrl_envs.matching_game.rules.protocol import Names
from slimrl_envs.matching_game.rules.questions import is_question, sentences

REVIEWER, PAPER, NUMBER = "reviewer", "paper", "number"
Mention = tuple[str, int]
"""A mention in a text: of a reviewer or paper, by its index, or of a number, by its value."""

MAX_READ_CHARS = 2000  # characters of a text that are read
MAX_DIGITS = 6
MIN_MISSPELT = 5  # letters


def ask_for_score(deal: Deal, cell: Cell) -> str:
    """Return a question for one score."""
    return "What is your score for {} and {}?".format(*deal.names(cell))


def tell_score(deal: Deal, cell: Cell, seen: Mapping[Cell, int]) -> str:
    """Return a sentence with the number that the player sees in a cell, or one that the player does not know the
    number."""
    reviewer, paper = deal.names(cell)
    return f"{reviewer} for {paper}: {seen[cell]}." if cell in seen else f"I do not know {reviewer} for {paper}."


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a text's questions: exact pairs, and the first reviewer and the first paper in the questions."""

    cells: tuple[Cell, ...]
    reviewer: int | None
    paper: int | None


class Parser:
    """A parser of texts about one deal."""

    def __init__(self, deal: Deal) -> None:
        self._forms = _forms(deal)
        names = "|".join(_pattern(form) for form in sorted(self._forms, key=len, reverse=True))
        # Longer names stand first, because an alternation takes the first that matches: `Ava Li` before `Ava`.
        self._token = re.compile(rf"(?<!\w)(?P<name>{names})(?!\w)|(?P<number>\d+)|(?P<word>\w+)", re.IGNORECASE)

    def mentions(self, text: str) -> list[Mention]:
        """Return the mentions in the first `MAX_READ_CHARS` characters of the text, in the order of the text."""
        found = (self._mention(match) for match in self._token.finditer(text[:MAX_READ_CHARS]))
        return [mention for mention in found if mention]

    def topics(self, text: str, answers: bool = False) -> Topics:
        """Return the topics that the text asks about. A pair is exact if one question names both of its parts. If the
        text `answers` a question ("which reviewer?"), a sentence without a number is also read as a question."""
        cells: list[Cell] = []
        named: list[Mention] = []
        for sentence in sentences(text[:MAX_READ_CHARS]):
            mentions = self.mentions(sentence)
            if is_question(sentence) or (answers and not _values(mentions, NUMBER)):
                named += mentions
                cells += product(_values(mentions, REVIEWER), _values(mentions, PAPER))
        reviewer, paper = ((*_values(named, kind), None)[0] for kind in (REVIEWER, PAPER))
        return Topics(tuple(dict.fromkeys(cells)), reviewer, paper)

    def numbers(self, text: str) -> list[int]:
        """Return the numbers in the text, without those in names."""
        return [value for kind, value in self.mentions(text) if kind == NUMBER]

    def scores(self, text: str) -> dict[Cell, int]:
        """Return the unambiguous scores in the text, from sentences that name one reviewer, one paper and one
        number."""
        scores: dict[Cell, int] = {}
        for sentence in sentences(text[:MAX_READ_CHARS]):
            mentions = self.mentions(sentence)
            if len(mentions) == 3 and len(value := dict(mentions)) == 3:
                scores[value[REVIEWER], value[PAPER]] = value[NUMBER]
        return scores

    def _mention(self, match: re.Match[str]) -> Mention | None:
        if match["number"]:
            return (NUMBER, int(match["number"])) if len(match["number"]) <= MAX_DIGITS else None
        word = " ".join(match[0].casefold().split())
        return self._forms.get(word) or self._meant(word)

    def _meant(self, word: str) -> Mention | None:
        """Return the mention that a misspelt word means; None unless exactly one name is one edit away."""
        if len(word) < MIN_MISSPELT:
            return None
        near = {self._forms[form] for form in self._forms if len(form) >= MIN_MISSPELT and _one_slip(word, form)}
        return near.pop() if len(near) == 1 else None


def _forms(deal: Deal) -> dict[str, Mention]:
    """Return the mention of each unambiguous name of a paper or reviewer."""
    papers, reviewers = Names.of_papers(deal).forms, Names.of_reviewers(deal).forms
    return {
        form: (kind, next(iter(indices)))
        for kind, forms, others in ((PAPER, papers, reviewers), (REVIEWER, reviewers, papers))
        for form, indices in forms.items()
        if len(indices) == 1 and form not in others and not form.isdigit()
    }


def _pattern(form: str) -> str:
    return r"\s+".join(map(re.escape, form.split()))


def _values(mentions: Iterable[Mention], kind: str) -> list[int]:
    return list(dict.fromkeys(value for what, value in mentions if what == kind))


def _one_slip(word: str, name: str) -> bool:
    """Return True if the word and the name differ by one edit: a letter wrong, missing or too many, or two neighbours
    swapped. The first letter must be right."""
    if word[0] != name[0] or abs(len(word) - len(name)) > 1:
        return False
    # Words that differ by one edit agree before some place `k` and after the edit. So no table of distances is needed.
    k = next((k for k, (a, b) in enumerate(zip(word, name, strict=False)) if a != b), min(len(word), len(name)))
    swapped = word[k : k + 2] == name[k : k + 2][::-1] and word[k + 2 :] == name[k + 2 :]
    return swapped or word[k + 1 :] in (name[k + 1 :], name[k:]) or word[k:] == name[k + 1 :]
