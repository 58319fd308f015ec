"""Counts the questions in a player's messages: question marks, question words, and phrases that ask for a score.

The counts depend only on the text. Pass a player's messages, but not its proposals. The module does not depend on
names, scores or rewards.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_MARK = re.compile(r"\?+")  # `???` is one
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
# A request without a question word, as `the affinity between Ava and BLEU, please`. A statement has a number or a verb.
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


@dataclass(frozen=True, slots=True)
class QuestionCounts:
    """The counts over a player's messages. The main count is `questions`: the sentences that ask something."""

    messages: int = 0
    questions: int = 0
    distinct: int = 0
    """The different questions, apart from case and punctuation: a repeated one counts once."""
    question_marks: int = 0
    words: int = 0
    """Sentences that open with a question word, or as in `do you`."""
    score_seeking: int = 0
    """Questions that seek a score: they speak of scores, or say `tell me`, `how good`, `do you have`."""


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
    (`tell me`), or asks for a score (`score for`, `affinity between`) and states none."""
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
