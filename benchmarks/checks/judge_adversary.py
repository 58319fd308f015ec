"""What does the match judge pay for answers that know nothing?

`uv run python -m benchmarks.checks.judge_adversary --wiki questions.jsonl --before REVISION` searches, over sets of
questions with their references, for the constant answer and for the rule that makes an answer of the question's own
words which earn most, in all and for each way in which questions begin. Chance is what an honest answer without
knowledge earns: the most frequent reference, or one of the options that a question names. Beside it stands the share
of honest answers that are accepted, today and by the judge of a former revision. About ten minutes."""

import argparse
import importlib
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.checks.honest_answers import Case, encyclopedia, honest_answers, real_pages, several_words
from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from slimrl.judges.match import COMMON, FILLERS, matches, normalise

Judge = Callable[[str, Sequence[str], str], bool]
MODULES = ("match.py", "words.py", "word_match.py", "word_lists.py", "word_lists.toml", "asked.py")
PREFIXES = (
    "",
    "University of",
    "Battle of",
    "the Battle of the",
    "Treaty of",
    "Peace of",
    "King",
    "Saint",
    "New",
    "Lake",
    "Mount",
    "World War",
    "Which is",
    "the first",
    "John",
    "not",
    "yes",
)
SUFFIXES = ("", "University", "City", "River", "War", "Award", "I", "II", "III", "years", "Company", "and Sons", "yes")
LISTS = (
    "yes and no",
    "yes no",
    "1 2 3 4 5 6 7 8 9 10",
    "all of them",
    "both",
    "January March April May June August September October November",
    "first second third",
    "I II III IV V VI VII VIII",
    "A",
    "the",
    "of the",
    "it was the one in the question",
)
AROUND = [(before, "") for before in PREFIXES] + [("", behind) for behind in SUFFIXES[1:]]
WORDS_AROUND = {around: frozenset(normalise(" ".join(around))) for around in AROUND}
MAX_CONSTANTS = 1000
BEAM = 6
WORDS_ADDED = 80
ROUNDS = 3


@dataclass(frozen=True)
class Questions:
    """A set of questions, and which of them a word of an answer may win: one that shares no word with a reference is
    never right."""

    name: str
    cases: Sequence[Case]

    @cached_property
    def with_word(self) -> dict[str, set[int]]:
        found = defaultdict(set)
        for place, words in enumerate(self.words):
            for word in words:
                found[word].add(place)
        return found

    @cached_property
    def words(self) -> list[frozenset[str]]:
        """The words of each case's references."""
        return [frozenset(word for one in case.references for word in normalise(one)) for case in self.cases]

    def won_by(self, answer: str, judge: Judge) -> frozenset[int]:
        """The questions to which a constant answer is right."""
        places = set().union(*(self.with_word.get(word, set()) for word in normalise(answer)))
        return frozenset(
            place for place in places if judge(answer, self.cases[place].references, self.cases[place].question)
        )


def search_constants(questions: Questions, judge: Judge) -> dict[str, frozenset[int]]:
    """Constant answers, and the questions that each wins: n-grams of the references, lists, and what a greedy search
    makes of the best by adding words on either side."""
    grams: Counter[str] = Counter()
    for case in questions.cases:
        texts = {" ".join(found) for one in case.references for found in ngrams(one.split(), 4)}
        grams.update(texts)
    words = [word for word, _ in Counter(word for gram in grams for word in gram.split()).most_common(WORDS_ADDED)]
    tried = [*PREFIXES[1:], *LISTS, *(gram for gram, _ in grams.most_common(MAX_CONSTANTS))]
    found = {answer: questions.won_by(answer, judge) for answer in tried}
    for _ in range(ROUNDS):
        best = sorted(found, key=lambda answer: -len(found[answer]))[:BEAM]
        longer = {text for answer in best for word in words for text in (f"{answer} {word}", f"{word} {answer}")}
        new = longer - found.keys()
        found |= {answer: questions.won_by(answer, judge) for answer in new}
    return {answer: won for answer, won in found.items() if won}


def ngrams(words: Sequence[str], longest: int) -> Iterable[Sequence[str]]:
    """All runs of up to `longest` words."""
    return (words[start : start + size] for size in range(1, longest + 1) for start in range(len(words) - size + 1))


def search_rules(questions: Questions, judge: Judge) -> dict[str, frozenset[int]]:
    """Rules that make an answer of the question's words, with and without words before and behind it; and the questions
    that each wins."""
    won: dict[str, set[int]] = defaultdict(set)
    for place, case in enumerate(questions.cases):
        for rule, part in parts_of(case.question).items():
            has = not questions.words[place].isdisjoint(normalise(part))
            for before, behind in AROUND:
                if has or not questions.words[place].isdisjoint(WORDS_AROUND[before, behind]):
                    answer = f"{before} {part} {behind}".strip()
                    if judge(answer, case.references, case.question):
                        won[f"{before} <{rule}> {behind}".strip()].add(place)
    return {rule: frozenset(places) for rule, places in won.items()}


def parts_of(question: str) -> dict[str, str]:
    """What a policy may copy from a question, by the name of the rule."""
    words = question.strip("?").split()
    names = [found.strip() for found in re.findall(r"(?:[^\W\d_a-z][\w'’.-]*\s?)+", " ".join(words[1:]))]
    options = [piece.strip(" ?") for piece in re.split(r"[,:;]| or | and | of ", question) if piece.strip(" ?")]
    content = [word for word in words if word.lower() not in FILLERS]
    parts = {
        "question": question,
        "content": " ".join(content),
        "content backwards": " ".join(reversed(content)),
        "without common words": " ".join(word for word in content if word.lower() not in COMMON),
        "all names": " ".join(names),
        "names with commas": ", ".join(names),
        "last two names": " ".join(names[-2:]),
        "first two names": " ".join(names[:2]),
        "all options": " ".join(options),
        "options with commas": ", ".join(options),
        "options in slashes": "/".join(options),
        "last two options": " ".join(options[-2:]),
        "last two, the last first": " ".join(reversed(options[-2:])),
        "numbers": " ".join(word for word in words if re.search(r"\d", word)),
    }
    for number in (1, 2, 3, -1, -2, -3):
        for kind, spans in (("name", names), ("option", options), ("word", words)):
            if len(spans) >= abs(number):
                parts[f"{kind} {number}"] = spans[number - 1 if number > 0 else number]
    for size in (2, 3, 4, 5, 6, 8):
        parts[f"first {size} words"] = " ".join(words[:size])
        parts[f"last {size} words"] = " ".join(words[-size:])
    return {rule: part for rule, part in parts.items() if part}


def names_one_option(answer_rule: str, case: Case) -> bool:
    """Whether a rule may be a guess at one of the options."""
    guess = re.search(r"<(name|option|word) -?\d>|<(first|last) \d words>", answer_rule)
    return bool(case.num_options) and guess is not None


def openings(cases: Sequence[Case]) -> dict[str, list[int]]:
    """The questions by the kind that they are of, or by their first word."""
    found = defaultdict(list)
    for place, case in enumerate(cases):
        found[case.kind or case.question.split()[0]].append(place)
    return found


def chance(cases: Sequence[Case], places: Sequence[int]) -> float:
    """How many of these questions an honest answer without knowledge wins: one of the options where some are named,
    and elsewhere the most frequent reference."""
    choices = sum(1 / cases[place].num_options for place in places if cases[place].num_options)
    open_places = [place for place in places if not cases[place].num_options]
    counts = Counter(text for place in open_places for text in {_key(one) for one in cases[place].references})
    return choices + max(counts.values(), default=0)


def _key(reference: str) -> str:
    return " ".join(normalise(reference))


def attack(questions: Questions, judge: Judge) -> dict[str, Any]:
    """The best constant, the best rule, and the best of both for each opening, as shares of the questions."""
    cases, num = questions.cases, len(questions.cases)
    constants = search_constants(questions, judge)
    rules = search_rules(questions, judge)
    rules = {
        rule: frozenset(place for place in won if not names_one_option(rule, cases[place]))
        for rule, won in rules.items()
    }
    groups = openings(cases)
    everything = list((constants | rules).values())
    by_opening = sum(
        max((len(won.intersection(places)) for won in everything), default=0) for places in groups.values()
    )
    return {
        "questions": num,
        "chance": chance(cases, range(num)) / num,
        "best_constant": _best(constants, num),
        "best_rule": _best(rules, num),
        "tried": {"constants": len(constants), "rules": len(rules)},
        "by_opening": {
            "openings": len(groups),
            "chance": sum(chance(cases, places) for places in groups.values()) / num,
            "reward": by_opening / num,
        },
    }


def _best(found: dict[str, frozenset[int]], num: int) -> dict[str, Any]:
    ranked = sorted(found, key=lambda answer: (-len(found[answer]), answer))[:5]
    return {answer: len(found[answer]) / num for answer in ranked}


def without_texts(content: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a set whose questions are not part of this repository."""
    kept = dict(content)
    for judge in kept.keys() - {"honest"}:
        best = {kind: max(kept[judge][kind].values(), default=0.0) for kind in ("best_constant", "best_rule")}
        kept[judge] = kept[judge] | {kind: {"(not shown)": share} for kind, share in best.items()}
    return kept | {"honest": {"kinds": kept["honest"]["kinds"]}}


def honesty(cases: Sequence[Case], judges: dict[str, Judge]) -> dict[str, Any]:
    """The share of honest answers that each judge accepts, by their kind."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    lost: dict[str, list[list[str]]] = defaultdict(list)
    for case in cases:
        for kind, answer in honest_answers(case):
            for row in (kind, "all"):
                counts[row]["num"] += 1
            verdicts = {name: judge(answer, case.references, case.question) for name, judge in judges.items()}
            for name, verdict in verdicts.items():
                counts[kind][name] += verdict
                counts["all"][name] += verdict
            if len(set(verdicts.values())) > 1:
                lost["only by " + next(name for name, right in verdicts.items() if right)].append(
                    [case.question, answer]
                )
    return {
        "kinds": {kind: dict(row) for kind, row in counts.items()},
        **{name: rows[:60] for name, rows in lost.items()},
    }


def judge_of_revision(revision: str) -> Judge:
    """The function `matches` as it was in a revision of this repository."""
    package = Path(tempfile.mkdtemp()) / "former_judges"
    package.mkdir()
    (package / "__init__.py").touch()
    for module in MODULES:
        show = ["git", "show", f"{revision}:src/slimrl/judges/{module}"]
        found = subprocess.run(show, cwd=ROOT, capture_output=True, text=True)
        if found.returncode == 0:
            text = found.stdout.replace("slimrl.judges.", "former_judges.")
            (package / module).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(package.parent))
    name = "match" if (package / "match.py").exists() else "word_match"
    judge: Judge = importlib.import_module(f"former_judges.{name}").matches
    return judge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wiki", type=Path, help="questions on real pages, as wiki-search reads them")
    parser.add_argument("--before", default="", help="a revision whose judge stands beside")
    parser.add_argument("--generated", type=int, default=3000, help="questions on the generated encyclopedia")
    parser.add_argument("--output", type=Path, default=RESULTS / "judge" / "adversary.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    sets = [Questions("several words", several_words()), Questions("encyclopedia", encyclopedia(arguments.generated))]
    if arguments.wiki:
        sets += [Questions(f"real pages, {split}", real_pages(arguments.wiki, split)) for split in ("train", "test")]
    judges: dict[str, Judge] = {"now": matches}
    if arguments.before:
        judges["before"] = judge_of_revision(arguments.before)
    content: dict[str, Any] = {}
    for one in sets:
        content[one.name] = {name: attack(one, judge) for name, judge in judges.items()}
        content[one.name]["honest"] = honesty(one.cases, judges)
        if one.name.startswith("real pages"):
            content[one.name] = without_texts(content[one.name])
        print(table({one.name: content[one.name]}), flush=True)
    write_result(arguments.output, facts, content, {str(arguments.wiki): "questions.jsonl"})


def table(content: dict[str, Any]) -> str:
    """A line for each set and judge."""
    rows = []
    for name, found in content.items():
        for judge in (judge for judge in ("now", "before") if judge in found):
            row, honest = found[judge], found["honest"]["kinds"]["all"]
            best = [f"{max(row[kind].values(), default=0):.3f}" for kind in ("best_constant", "best_rule")]
            by = row["by_opening"]
            shares = [f"{row['chance']:.3f}", *best, f"{by['chance']:.3f}", f"{by['reward']:.3f}"]
            rows.append((name, judge, *shares, f"{honest.get(judge, 0) / honest['num']:.4f}"))
    head = ("questions", "judge", "chance", "constant", "rule", "chance by opening", "reward by opening", "honest")
    return markdown_table(head, rows)


if __name__ == "__main__":
    main()
