"""The requests of `alphabet-sort`, the right list for each request, and the score of an answer.

This module does not depend on the source of names, or on how scores become rewards.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from slimrl.models.chat.thoughts import without_thoughts

KEYS = ("first", "last")  # in the order of the words in a name
OPEN, CLOSE = "<sorted>", "</sorted>"
NEW_TAG = " (new)"


@dataclass(frozen=True, slots=True)
class Arrival:
    """The names that arrive in a turn, and the key by which the whole list is sorted: the `first` or the `last`
    name."""

    names: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one answer: its similarity to the true list, from 0 to 1, and three checks.

    `tagged`: the answer is in tags. `names`: the answer has each name of the true list once, and no other name.
    `new_tags`: the answer has at least one right name, and among its right names exactly the new names are tagged.
    """

    similarity: float
    tagged: bool
    names: bool
    new_tags: bool


def request_text(arrivals: Sequence[Arrival], restate: bool) -> str:
    """Return the request of the last turn in `arrivals`. With `restate`, the request starts with the sorted list so
    far."""
    *before, latest = arrivals
    names = [line.removesuffix(NEW_TAG) for line in true_list(before)] if before and restate else []
    so_far = ["The list so far:", *names] if names else []
    task = "Add these names to the list, and sort the whole list" if before else "Sort these names"
    return "\n".join([*so_far, f"{task} by {latest.by.upper()} name, in {OPEN} tags:", *latest.names])


def true_list(arrivals: Sequence[Arrival]) -> list[str]:
    """Return the lines of the right answer to the last turn in `arrivals`."""
    latest = arrivals[-1]
    new = latest.names if len(arrivals) > 1 else ()
    names = [name for arrival in arrivals for name in arrival.names]
    names.sort(key=lambda name: name.split()[KEYS.index(latest.by)])
    return [f"{name}{NEW_TAG}" if name in new else name for name in names]


def format_answer(lines: Sequence[str]) -> str:
    """Return the answer with these lines, in tags."""
    return "\n".join([OPEN, *lines, CLOSE])


def score_answer(reply: str, truth: Sequence[str]) -> Score:
    """Return the score of the first answer in tags. Thoughts are ignored.

    Lines are compared exactly, including case, numbers and bullets. Only spaces around a line, repeated spaces and
    empty lines are ignored. The similarity is the largest number of lines in the right order, divided by the number of
    lines in the answer or in the true list, whichever is larger. A left-out name does not make the divisor smaller, so
    a policy loses nothing if it guesses the place of a name. If the answer repeats a name, only the first line with
    this name counts, because two lines would be two guesses.
    """
    visible = without_thoughts(reply)
    begin = visible.find(OPEN)
    end = visible.find(CLOSE, begin)
    if begin < 0 or end < 0:
        return Score(0.0, tagged=False, names=False, new_tags=False)
    lines = [line for text in visible[begin + len(OPEN) : end].splitlines() if (line := " ".join(text.split()))]
    given = [line.removesuffix(NEW_TAG) for line in lines]
    expected = {line.removesuffix(NEW_TAG): line for line in truth}
    known = [(name, line) for name, line in zip(given, lines, strict=True) if name in expected]
    return Score(
        _num_in_order(lines, truth) / max(len(lines), len(truth)),
        tagged=True,
        names=sorted(given) == sorted(expected),
        new_tags=bool(known) and all(line == expected[name] for name, line in known),
    )


def _num_in_order(lines: Sequence[str], truth: Sequence[str]) -> int:
    """Return the largest number of lines that are in the same order as in `truth`. If several lines have the same name,
    only the first of them counts.

    The result is the length of the longest increasing subsequence of the lines' places in `truth`, found by patience
    sorting in O(n log n).
    """
    places = {line: place for place, line in enumerate(truth)}
    seen = set[str]()
    # ends[n] is the first place in the true list at which a subsequence of n + 1 lines can end.
    ends = list[int]()
    for line in lines:
        name = line.removesuffix(NEW_TAG)
        if line in places and name not in seen:
            # The line extends the longest subsequence that ends before its place. An earlier end replaces a later one.
            n = bisect_left(ends, places[line])
            ends[n : n + 1] = [places[line]]
        seen.add(name)
    return len(ends)
