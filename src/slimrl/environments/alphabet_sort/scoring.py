"""What `alphabet-sort` asks for in each turn, the list that is right there, and how near to it an answer comes.

Knows nothing of turns' rewards, nor of where the names come from.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from slimrl.models.chat.thoughts import without_thoughts

KEYS = {"first": 0, "last": 1}  # which of a name's two words
OPEN, CLOSE = "<sorted>", "</sorted>"
MARK = " (new)"


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a turn brings: names, and by which of their words the whole list is to be sorted, `first` or `last`."""

    names: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class Score:
    """Of one answer: its similarity to the true list, 0 to 1, and what else is right about it.

    `tagged`: it stands in tags. `names`: it has each name of the true list once, and no other. `marks`: it has some of
    them, and of those it has, exactly the new ones are marked.
    """

    similarity: float
    tagged: bool
    names: bool
    marks: bool


def asked(arrivals: Sequence[Arrival], restate: bool) -> str:
    """What the policy reads when the last of these has arrived; with `restate`, after the list so far, sorted."""
    *before, latest = arrivals
    names = [line.removesuffix(MARK) for line in true_list(before)] if before and restate else []
    so_far = ["The list so far:", *names] if names else []
    task = "Add these names to the list, and sort the whole list" if before else "Sort these names"
    return "\n".join([*so_far, f"{task} by {latest.by.upper()} name, in {OPEN} tags:", *latest.names])


def true_list(arrivals: Sequence[Arrival]) -> list[str]:
    """The lines that are right when the last of these has arrived."""
    latest = arrivals[-1]
    new = latest.names if len(arrivals) > 1 else ()
    names = [name for arrival in arrivals for name in arrival.names]
    names.sort(key=lambda name: name.split()[KEYS[latest.by]])
    return [f"{name}{MARK}" if name in new else name for name in names]


def written(lines: Sequence[str]) -> str:
    """The lines as an answer."""
    return "\n".join([OPEN, *lines, CLOSE])


def judged(reply: str, truth: Sequence[str]) -> Score:
    """How near the first answer in tags comes to the true list; what a model thinks before it speaks is not read.

    Lines are equal or not: upper and lower case count, and so do numbers and bullets before a name; spaces around a
    line, more than one between words, and empty lines do not. The similarity is the number of lines that stand in the
    right order, as many as can be picked, divided by the lines given or those of the true list, whichever are more. So
    a name whose place is not known is worth a guess: left out, it would leave the divisor as it is. A name that comes
    again matches nothing: two places for one name would be two guesses.
    """
    said = without_thoughts(reply)
    begin = said.find(OPEN)
    end = said.find(CLOSE, begin)
    if begin < 0 or end < 0:
        return Score(0.0, tagged=False, names=False, marks=False)
    lines = [line for text in said[begin + len(OPEN) : end].splitlines() if (line := " ".join(text.split()))]
    given = [line.removesuffix(MARK) for line in lines]
    expected = {line.removesuffix(MARK): line for line in truth}
    known = [(name, line) for name, line in zip(given, lines, strict=True) if name in expected]
    return Score(
        _num_in_order(lines, truth) / max(len(lines), len(truth)),
        tagged=True,
        names=sorted(given) == sorted(expected),
        marks=bool(known) and all(line == expected[name] for name, line in known),
    )


def _num_in_order(lines: Sequence[str], truth: Sequence[str]) -> int:
    """The most lines that can be picked so that all stand in the true list, in this order: the longest increasing run
    of their places, by patience sorting. Of each name only the first line counts."""
    places = {line: place for place, line in enumerate(truth)}
    seen = set[str]()
    ends = list[int]()  # at n: the first place in the true list at which n + 1 picked lines can end
    for line in lines:
        name = line.removesuffix(MARK)
        if line in places and name not in seen:
            n = bisect_left(ends, places[line])
            ends[n : n + 1] = [places[line]]
        seen.add(name)
    return len(ends)
