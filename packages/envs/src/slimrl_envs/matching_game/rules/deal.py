"""A deal of the matching game: the table of values, who knows which of them, and the worth of an assignment.

n reviewers (rows) and n papers (columns). Each player sees some of the values, multiplied by a secret scale of its
own. Players are 0 and 1 here; people call them player 1 and player 2. Knows nothing of turns or of text.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

Assignment = tuple[int, ...]
"""`assignment[paper]` is the reviewer: columns to rows."""
Table = tuple[tuple[int, ...], ...]
Mask = tuple[tuple[bool, ...], ...]

MAX_VALUE = 99
UNKNOWN = 50
"""The value of a cell that nobody knows, and the value that a player assumes for a cell it does not know."""
MARGIN = 1.25
"""Talking pays when the optimum is more than this times what a player finds alone."""

PAPERS = (
    "BLEU: a Method for Automatic Evaluation of Machine Translation",
    "Electra: Pre-training Text Encoders as Discriminators Rather Than Generators",
    "GloVe: Global Vectors for Word Representation",
    "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding",
    "LLaMA: Open and Efficient Foundation Language Models",
    "RoBERTa: A Robustly Optimized BERT Pretraining Approach",
    "QuAC: Question Answering in Context",
    "SWAG: A Large-Scale Adversarial Dataset for Grounded Commonsense Inference",
)
REVIEWERS = (
    "Ava Li", "Daniel Nguyen", "Sofia Patel", "Andrei Petrov", "Morgan Reed", "Joseph Santos", "Ethan Smith",
    "Noah Wilson",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deal:
    """One game's hidden state, checked when made. Raises ValueError if it breaks a rule.

    >>> names = default_names(2)
    >>> deal = Deal(((90, 50), (10, 70)), (((True, False), (True, False)), ((False, False), (False, True))), (2.0, 1.5),
    ...             *names, "example")
    >>> deal.visible_table(0), deal.best_assignment, deal.best
    (((180, None), (20, None)), (0, 1), 160)
    """

    table: Table
    """`table[reviewer][paper]`, 0 to 99; 50 where nobody knows it."""
    known: tuple[Mask, Mask]
    """For each player, whether it sees the cell."""
    scales: tuple[float, float]
    """What each player's values are multiplied by before it sees them."""
    papers: tuple[str, ...]
    """Full titles; see `short_papers`."""
    reviewers: tuple[str, ...]
    """Full names; see `short_reviewers`."""
    game_id: str
    order: tuple[Assignment, Assignment] = ((), ())
    """Reviewers and papers in the order in which they were dealt, by which `own_best` decides between equals; nothing
    where that is the order of the table. No player knows it."""

    def __post_init__(self) -> None:
        _check_grid("table", self.table, len(self.table))
        if len(self.known) != 2 or len(self.scales) != 2:
            raise ValueError(f"there are two players, but {len(self.known)} masks and {len(self.scales)} scales")
        for player, mask in enumerate(self.known, start=1):
            _check_grid(f"mask of player {player}", mask, self.size)
        _check_values(self.table, self.known)
        for scale in self.scales:
            if not (math.isfinite(scale) and scale > 0):
                raise ValueError(f"a scale is {scale}; it must be a finite number above 0")
        for order in self.order:
            if order and sorted(order) != list(range(self.size)):
                raise ValueError(f"an order is {order}; it must have each of 0 to {self.size - 1} once")
        _check_names("paper", self.papers, self.short_papers, self.size)
        _check_names("reviewer", self.reviewers, self.short_reviewers, self.size)
        papers = {name.casefold() for name in self.short_papers}
        for name in (*self.reviewers, *self.short_reviewers):
            if name.casefold() in papers:
                raise ValueError(f"a reviewer and a paper are both called {name!r}")

    @property
    def size(self) -> int:
        """n: the number of reviewers, and of papers."""
        return len(self.table)

    @property
    def short_papers(self) -> tuple[str, ...]:
        """Titles up to the colon."""
        return tuple(title.partition(":")[0].strip() for title in self.papers)

    @property
    def short_reviewers(self) -> tuple[str, ...]:
        """First names, or the full name where two share the first."""
        firsts = [_first(name) for name in self.reviewers]
        shared = Counter(first.casefold() for first in firsts)
        pairs = zip(firsts, self.reviewers, strict=True)
        return tuple(first if shared[first.casefold()] == 1 else name for first, name in pairs)

    def value(self, assignment: Assignment) -> int:
        """The sum of the true values. Raises ValueError unless every paper has a reviewer of its own."""
        if sorted(assignment) != list(range(self.size)):
            raise ValueError(f"{assignment} does not give {self.size} papers a reviewer each")
        return sum(self.table[reviewer][paper] for paper, reviewer in enumerate(assignment))

    @property
    def best_assignment(self) -> Assignment:
        """One assignment of the highest value."""
        return optimum(self.table)

    @property
    def best(self) -> int:
        """The highest value that an assignment can have."""
        return self.value(self.best_assignment)

    def score(self, assignment: Assignment) -> float:
        """Value / best, in 0..1. Where all values are 0, every assignment is an optimum: 1."""
        best = self.best
        return self.value(assignment) / best if best else 1.0

    def visible_table(self, player: int) -> tuple[tuple[int | None, ...], ...]:
        """The table as a player sees it: its known values on its own scale, rounded down; None where it knows
        nothing."""
        scale = self.scales[player]
        return tuple(
            tuple(int(value * scale) if known else None for value, known in zip(values, flags, strict=True))
            for values, flags in zip(self.table, self.known[player], strict=True)
        )

    def own_best(self, player: int) -> Assignment:
        """The assignment that looks best to the player alone, who counts 50 for every cell it does not know.

        Several may look equally good, at n = 3 in most games, and the rule decides which games are dealt by the one
        taken here. So the published choice between equals (by `optimum`, in the order of the deal) is kept, and the
        table is shown in another order: otherwise the first assignments would rarely be optimal.
        """
        reviewers, papers = (order or tuple(range(self.size)) for order in self.order)
        looks = np.where(self.known[player], self.table, UNKNOWN)[np.ix_(reviewers, papers)]
        chosen = dict(zip(papers, (reviewers[place] for place in optimum(looks)), strict=True))
        return tuple(chosen[paper] for paper in range(self.size))

    @property
    def requires_communication(self) -> bool:
        """Whether neither player is near the optimum alone, which is the rule of a deal."""
        best = self.best
        return all(MARGIN * self.value(self.own_best(player)) < best for player in (0, 1))

    def table_text(self, player: int) -> str:
        """The player's first observation: a heading and its table as CSV, short names of papers on top."""
        header = ["", *self.short_papers]
        rows = [
            [name, *("" if cell is None else str(cell) for cell in row)]
            for name, row in zip(self.reviewers, self.visible_table(player), strict=True)
        ]
        return "\n".join(["Reviewer Paper Similarity Scores:", *(",".join(row) for row in [header, *rows])])


def optimum(weights: npt.ArrayLike) -> Assignment:
    """The assignment of maximum weight of a square `weights[reviewer][paper]`."""
    reviewers, papers = linear_sum_assignment(np.asarray(weights), maximize=True)
    return tuple(int(reviewer) for reviewer in reviewers[np.argsort(papers)])


def default_names(size: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Papers and reviewers of a game of this size; beyond eight they are numbered."""
    more = range(len(PAPERS) + 1, size + 1)
    return (*PAPERS[:size], *(f"Paper {k}" for k in more)), (*REVIEWERS[:size], *(f"Reviewer{k}" for k in more))


def _first(name: str) -> str:
    return name.split(maxsplit=1)[0] if name.strip() else ""


def _check_grid(what: str, grid: Sequence[Sequence[object]], size: int) -> None:
    if size < 2 or len(grid) != size or any(len(row) != size for row in grid):
        widths = sorted({len(row) for row in grid})
        expected = f"{size} x {size}" if size >= 2 else "square, 2 x 2 at least"
        raise ValueError(f"the {what} has {len(grid)} rows of {widths} cells; it must be {expected}")


def _check_values(table: Table, known: tuple[Mask, Mask]) -> None:
    for reviewer, row in enumerate(table):
        for paper, value in enumerate(row):
            if type(value) is not int or not 0 <= value <= MAX_VALUE:
                raise ValueError(f"table[{reviewer}][{paper}] is {value!r}; values are whole numbers, 0 to {MAX_VALUE}")
            if value != UNKNOWN and not any(mask[reviewer][paper] for mask in known):
                raise ValueError(f"table[{reviewer}][{paper}] is {value} but nobody knows it; it must be {UNKNOWN}")


def _check_names(what: str, names: Sequence[str], short: Sequence[str], size: int) -> None:
    if len(names) != size:
        raise ValueError(f"{len(names)} names for {size} {what}s")
    for name in (*names, *short):
        if not name.strip() or name != " ".join(name.split()):
            raise ValueError(f"the {what} name {name!r} is empty, or has spaces that do not count or a line break")
    for name in short if what == "paper" else names:
        if any(mark in name for mark in ',:"<>[].!?;'):
            raise ValueError(
                f'the {what} name {name!r} holds one of , : " < > [ ] . ! ? ; which tables, proposals and sentences use'
            )
    for group in (names, short):
        again = [name for name, count in Counter(name.casefold() for name in group).items() if count > 1]
        if again:
            raise ValueError(f"two {what}s are called {again[0]!r}")
