"""The free text of players: the names and numbers in it, the sentences that count as questions, and the sentences about
scores that scripted players write. This module does not depend on acts, turns or rewards.

Unambiguous short, full, first and last names are recognised in upper and lower case. A misspelt word is recognised if
it is one edit away from exactly one name. The first letter must be right and the word must be long, so that no English
word is taken for a name. To count questions, pass only a player's messages, and not its proposals.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from slimrl_envs.matching_game.rules.deal import Cell, Deal
from slimrl_envs.matching_game.rules.protocol import PAPER, REVIEWER, Names

NUMBER = "number"
Mention = tuple[str, int]
"""A mention of a reviewer, a paper or a number in a text. It has the kind, and the index or the number."""

MAX_READ_CHARS = 2000  # characters of a text that are read
MAX_DIGITS = 6
MIN_MISSPELT = 5  # letters
_MARK = re.compile(r"\?+")  # `???` counts as one
_LEAD = r"^\W*(?:(?:and|so|but|ok|okay|hi|hello|hey|well|now|then|next|also|please)\W+)*"
_OPENING = re.compile(
    rf"{_LEAD}(?:(?:what|who|whom|whose|which|how|when|where|why)\b"
    r"|(?:can|could|would|will|do|does|did|is|are|have|has)\s+(?:you|i|we|he|she|it|they|there|any|your)\b)",
    re.IGNORECASE,
)
_TELLS_TO_TELL = re.compile(
    rf"{_LEAD}(?:(?:tell|give|show) me|let me know|(?:share|list) your|i(?: want|'d like| would like) to know)\b",
    re.IGNORECASE,
)
_OF_A_SCORE = r"(?:scores?|affinit(?:y|ies)|similarit(?:y|ies))\s+(?:for|between|of)\b"
# A request without a question word, such as `the affinity between Ava and BLEU, please`. It has no number and no verb.
_SEEKS = re.compile(rf"{_LEAD}(?:the |your )?{_OF_A_SCORE}", re.IGNORECASE)
_MENTIONS = re.compile(rf"\b{_OF_A_SCORE}", re.IGNORECASE)
_WANTS = re.compile(
    r"\b(?:please|need|needs|want|share|give|send|provide|tell|ask|asking|like to|looking for|your|curious|about)\b",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"\d|:\s*\w|\b(?:is|are|was|were|has|have|had|be|seems?|looks?|no|not|\w+n't|my|mine|know|said|told|thanks?)\b",
    re.IGNORECASE,
)
_SCORE = re.compile(
    r"\b(?:scores?|affinit(?:y|ies)|similarit(?:y|ies)|values?|numbers?)\b"
    r"|\b(?:tell|give|show) me\b|\bknow about\b|\bhow (?:good|well)\b|\bdo you (?:have|see|know)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?;\n]+[.!?;]*")
_LETTER = re.compile(r"[^\W\d_]")


def ask_for_score(deal: Deal, cell: Cell) -> str:
    """Return a question for one score."""
    return "What is your score for {} and {}?".format(*deal.names(cell))


def tell_score(deal: Deal, cell: Cell, seen: Mapping[Cell, int]) -> str:
    """Return a sentence with the number that the player sees in a cell. If the player does not see the cell, the
    sentence states this."""
    reviewer, paper = deal.names(cell)
    return f"{reviewer} for {paper}: {seen[cell]}." if cell in seen else f"I do not know {reviewer} for {paper}."


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a text's questions. `cells` has the pairs that one question names completely. `reviewer` and
    `paper` are the first ones that any question names."""

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
        """Return the topics that the text asks about. A pair is exact if one question names its reviewer and its paper.
        With `answers`, the text replies to a question such as "which reviewer?", so a sentence without a number is also
        read as a question."""
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
        """Return the numbers in the text, except for numbers in names."""
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
    papers, reviewers = Names(deal, PAPER).forms, Names(deal, REVIEWER).forms
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
    """Return True if the word and the name differ by one edit: a wrong, missing or extra letter, or two swapped
    neighbours. The first letter must be right."""
    if word[0] != name[0] or abs(len(word) - len(name)) > 1:
        return False
    # Words that differ by one edit agree before some place `k` and after the edit. So no table of distances is needed.
    k = next((k for k, (a, b) in enumerate(zip(word, name, strict=False)) if a != b), min(len(word), len(name)))
    swapped = word[k : k + 2] == name[k : k + 2][::-1] and word[k + 2 :] == name[k + 2 :]
    return swapped or word[k + 1 :] in (name[k + 1 :], name[k:]) or word[k:] == name[k + 1 :]


@dataclass(frozen=True, slots=True)
class QuestionCounts:
    """The counts over a player's messages. The main count is `questions`: the sentences that ask something."""

    messages: int = 0
    questions: int = 0
    distinct: int = 0
    """Different questions. A repeated question counts once, even if case or punctuation differ."""
    question_marks: int = 0
    words: int = 0
    """Sentences that start with a question word, or with a phrase such as `do you`."""
    score_seeking: int = 0
    """Questions that mention a score, or ask for one without the word: see `_SCORE`."""


def count_questions(messages: Iterable[str]) -> QuestionCounts:
    """Return the counts over all messages of one player in one game.

    >>> count_questions(["What is Ava's score for BLEU? I have 90 for Daniel. And Ethan???"]).questions
    2
    """
    said = list(messages)
    each = [sentence for message in said for sentence in sentences(message)]
    asked = [sentence for sentence in each if is_question(sentence)]
    return QuestionCounts(
        messages=len(said),
        questions=len(asked),
        distinct=len({" ".join(re.findall(r"\w+", sentence.casefold())) for sentence in asked}),
        question_marks=sum(len(_MARK.findall(message)) for message in said),
        words=sum(bool(_OPENING.match(sentence)) for sentence in each),
        score_seeking=sum(bool(_SCORE.search(sentence)) for sentence in asked),
    )


def is_question(sentence: str) -> bool:
    """Return True if a sentence asks something: it has a question mark, starts with a question word, demands an answer
    (`tell me`), or asks for a score (`score for`, `affinity between`) without stating a score."""
    if not _LETTER.search(sentence):
        return False
    return "?" in sentence or bool(_OPENING.match(sentence) or _TELLS_TO_TELL.match(sentence)) or _seeks_score(sentence)


def _seeks_score(sentence: str) -> bool:
    if _STATES.search(sentence):
        return False
    return bool(_SEEKS.match(sentence) or (_MENTIONS.search(sentence) and _WANTS.search(sentence)))


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text, each with its closing punctuation."""
    return [sentence for sentence in _SENTENCE.findall(text) if sentence.strip()]
