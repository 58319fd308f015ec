"""Questions with their references, and the ways in which someone who knows the answer would write it."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from slimrl_search.retrieval.encyclopedia import KINDS, Encyclopedia
from slimrl_search.retrieval.sources import read_questions
from slimrl_search.wiki_search.environment import split_of

SEVERAL_WORDS = Path(__file__).with_name("several_words.jsonl")
NUM_PAGES = 1000
# Every kind of question of the encyclopedia, with its answer as a sentence.
SENTENCES: dict[str, str] = {
    question: sentence for kind in KINDS.values() for question, _, _, sentence in kind.get("facts", ())
}


@dataclass(frozen=True, slots=True)
class Case:
    """A question and its references, of which the first is the answer."""

    question: str
    references: tuple[str, ...]
    kind: str = ""  # what data of our own call it
    num_options: int = 0  # that the question names


def several_words() -> list[Case]:
    """The collected questions."""
    rows = [json.loads(line) for line in SEVERAL_WORDS.read_text(encoding="utf-8").splitlines()]
    return [Case(row["question"], (row["answer"], *row["aliases"]), row["kind"], row.get("options", 0)) for row in rows]


def encyclopedia(num: int) -> list[Case]:
    """Questions on the generated encyclopedia."""
    asked = islice(Encyclopedia(NUM_PAGES).questions(), num)
    return [Case(one.question, (one.answer, *one.aliases)) for one in asked]


def real_pages(path: Path, split: str) -> list[Case]:
    """The questions of a file whose split this is."""
    asked = read_questions(str(path), "--wiki")
    return [Case(one.question, (one.answer, *one.aliases)) for one in asked if split_of(one) == split]


def honest_answers(case: Case) -> Iterator[tuple[str, str]]:
    """Ways to write the references, each with its kind."""
    for reference in case.references:
        for kind, write in WAYS.items():
            if answer := write(reference, case):
                yield kind, answer


def _sentence(reference: str, case: Case) -> str:
    """The question as a statement, for the openings that are turned around easily."""
    if case.kind == "choice":
        return ""  # see _choice
    for kind, sentence in SENTENCES.items():
        before, after = kind.split("{}", 1)
        if case.question.startswith(before) and case.question.endswith(after):
            return sentence.format(case.question[len(before) : len(case.question) - len(after)], a=reference)
    tail = case.question.removesuffix("?").split()
    if tail[0] == "Who":
        return " ".join([reference, *tail[1:]]) + "."
    if tail[0] == "Which" and case.kind:
        return " ".join([reference, *tail[2:]]) + "."
    if tail[:2] == ["What", "is"]:
        return " ".join([*tail[2:], "is", reference]).capitalize() + "."
    return ""


def _choice(reference: str, case: Case) -> str:
    return f"It was {reference}." if case.kind == "choice" else ""


def _without_middle(reference: str, case: Case) -> str:
    """A person's first and last name, where someone is asked for."""
    names = reference.split()
    asks_for_somebody = re.match(r"Who\b|Whose\b", case.question) or case.kind == "three names"
    is_name = len(names) > 2 and all(name[0].isupper() for name in names) and "," not in reference
    return f"{names[0]} {names[-1]}" if asks_for_somebody and is_name else ""


def _without_unit(reference: str, case: Case) -> str:
    """The number alone, where the question says what is counted."""
    found = re.fullmatch(r"([\d,.]+) (\w+)", reference)
    return found[1] if found and found[2] in case.question else ""


def _other_date(reference: str, case: Case) -> str:
    """The month before the day, or the other way round."""
    found = re.fullmatch(r"(\d\d?) ([A-Z][a-z]+) (\d{4})", reference)
    return f"{found[2]} {found[1]}, {found[3]}" if found else ""


WAYS: Mapping[str, Callable[[str, Case], str]] = {
    "the reference": lambda reference, case: reference,
    "in lower case": lambda reference, case: reference.lower(),
    "in capitals": lambda reference, case: reference.upper(),
    "with an article": lambda reference, case: f"the {reference}" if reference[0].islower() else "",
    "without its article": lambda reference, case: found[1] if (found := re.match(r"(?i)the (.+)", reference)) else "",
    "with a full stop": lambda reference, case: f"{reference}.",
    "in markdown": lambda reference, case: f"**{reference}**",
    "in quotes": lambda reference, case: f'"{reference}"',
    "the answer is": lambda reference, case: f"The answer is {reference}.",
    "I think": lambda reference, case: f"It was {reference}, I think.",
    "a short sentence": _choice,
    "a sentence": _sentence,
    "without middle names": _without_middle,
    "without its unit": _without_unit,
    "the date otherwise": _other_date,
}
