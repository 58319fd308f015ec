"""Counts the questions in what a player says: marks, question words, and phrases that seek a score.

A pure function of the text. Only a player's messages are to be given, not its proposals. Knows nothing of names,
scores or rewards.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_MARK = re.compile(r"\?+")  # `???` is one
_WORD = re.compile(
    r"\b(?:what|who|whom|whose|which|how|when|where|why|can|could|would|will|do|does|did|is|are|have|has)\b", re.I
)
_OPENING = re.compile(
    rf"^\W*(?:(?:and|so|but|ok|okay|hi|hello|hey|well|now|then|please)\W+)*(?:{_WORD.pattern})", re.IGNORECASE
)
_SEEKS_SCORE = re.compile(
    r"\b(?:tell me|give me|let me know|show me|share|list|i(?: would|'d) like to know|i want to know|i need)\b"
    r"|\b(?:what|which|how|your|any|a|the)\b[^.!?;\n]{0,40}\b(?:scores?|affinit(?:y|ies)|similarit(?:y|ies)|values?)\b"
    r"[^.!?;\n]{0,20}\b(?:for|of|between|with|on)\b",
    re.IGNORECASE,
)
_ASKS_TO_BE_TOLD = re.compile(
    r"^\W*(?:please\W+)?(?:tell me|give me|let me know|show me|i(?: would|'d) like to know|i want to know)\b", re.I
)
_SENTENCE = re.compile(r"[^.!?;\n]+[.!?;]*")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class QuestionCounts:
    """What a player's messages hold. `questions` is the number to go by: sentences that ask something."""

    messages: int = 0
    questions: int = 0
    distinct: int = 0
    """Different questions, case and punctuation aside: saying one over and over counts once."""
    marks: int = 0
    words: int = 0
    """Question words that open a sentence."""
    score_seeking: int = 0
    """Sentences that ask for a score by a phrase such as `score for`, `tell me`."""


def count_questions(messages: Iterable[str]) -> QuestionCounts:
    """The counts over all messages of one player in one game."""
    said = list(messages)
    each = [sentence for message in said for sentence in sentences(message)]
    asked = [sentence for sentence in each if is_question(sentence)]
    return QuestionCounts(
        messages=len(said),
        questions=len(asked),
        distinct=len({" ".join(re.findall(r"\w+", sentence.casefold())) for sentence in asked}),
        marks=sum(len(_MARK.findall(message)) for message in said),
        words=sum(bool(_OPENING.match(sentence)) for sentence in each),
        score_seeking=sum(bool(_SEEKS_SCORE.search(sentence)) for sentence in each),
    )


def num_questions(message: str) -> int:
    """How many sentences of a message ask something.

    >>> num_questions("What is Ava's score for BLEU? I have 90 for Daniel. And Ethan???")
    2
    """
    return count_questions([message]).questions


def is_question(sentence: str) -> bool:
    """Whether a sentence asks: it ends with a question mark, opens with a question word, or asks to be told."""
    if not _LETTER.search(sentence):
        return False
    return "?" in sentence or bool(_OPENING.match(sentence)) or bool(_ASKS_TO_BE_TOLD.match(sentence))


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, each with the marks that end it."""
    return [sentence for sentence in _SENTENCE.findall(text) if sentence.strip()]
