"""A deal of the matching game: the table of values, the cells that each player knows, and the worth of an assignment.

The table has n reviewers (rows) and n papers (columns). Each player sees some of the values, multiplied by the player's
secret scale. The players are 0 and 1 in the code, and player 1 and player 2 in texts for people. This module does not
depend on turns or messages.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

Assignment = tuple[int, ...]
"""`assignment[paper]` is the index of the reviewer."""
Cell = tuple[int, int]
"""A cell of the table: reviewer and paper."""
Table = tuple[tuple[int, ...], ...]
Mask = tuple[tuple[bool, ...], ...]

MAX_VALUE = 99
UNKNOWN = 50
"""The value of a cell that nobody knows, and the value that a player assumes for a cell it does not know."""
MARGIN = 1.25
"""A deal requires communication if the optimum is more than this factor times the value that each player reaches
alone."""

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
    """The hidden state of one game. `game_files.deal_of` makes a deal from untrusted data and checks it.

    >>> first, second = ((True, False), (True, False)), ((False, False), (False, True))
    >>> deal = Deal(((90, 50), (10, 70)), (first, second), (2.0, 1.5), *default_names(2), "example")
    >>> deal.seen(0)  # player 0 sees both values of paper 0, multiplied by 2
    {(0, 0): 180, (1, 0): 20}
    >>> deal.best_assignment, deal.best  # paper 0 for reviewer 0, paper 1 for reviewer 1: 90 + 70
    ((0, 1), 160)
    """

    table: Table
    """`table[reviewer][paper]` is the value, from 0 to 99. It is 50 if no player knows the cell."""
    known: tuple[Mask, Mask]
    """`known[player][reviewer][paper]` is True if the player sees the cell."""
    scales: tuple[float, float]
    """Each player's secret scale: the factor between a value and the number that the player sees."""
    papers: tuple[str, ...]
    """Full titles; see `short_papers`."""
    reviewers: tuple[str, ...]
    """Full names; see `short_reviewers`."""
    game_id: str
    order: tuple[Assignment, Assignment] = ((), ())
    """The order in which reviewers and papers were dealt; empty if it is the order of the table. `own_best` uses it to
    choose between equally good assignments. No player knows it."""

    @property
    def size(self) -> int:
        """The number n of reviewers, which is also the number of papers."""
        return len(self.table)

    @property
    def cells(self) -> list[Cell]:
        """All cells, in the order of the table."""
        return [(reviewer, paper) for reviewer in range(self.size) for paper in range(self.size)]

    @property
    def short_papers(self) -> tuple[str, ...]:
        """The short titles of the papers: each title up to its colon."""
        return tuple(title.partition(":")[0].strip() for title in self.papers)

    @property
    def short_reviewers(self) -> tuple[str, ...]:
        """The first names of the reviewers. Reviewers who share a first name have their full names."""
        firsts = [name.partition(" ")[0] for name in self.reviewers]
        shared = Counter(map(str.casefold, firsts))
        pairs = zip(firsts, self.reviewers, strict=True)
        return tuple(first if shared[first.casefold()] == 1 else name for first, name in pairs)

    def names(self, cell: Cell) -> tuple[str, str]:
        """Return the short names of the reviewer and the paper of a cell."""
        return self.short_reviewers[cell[0]], self.short_papers[cell[1]]

    def value(self, assignment: Assignment) -> int:
        """Return the sum of the true values. Raise ValueError unless every paper has a different reviewer."""
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
        """Return the value of an assignment divided by the best value, in 0..1. If all values are 0, every assignment
        scores 1."""
        best = self.best
        return self.value(assignment) / best if best else 1.0

    def seen(self, player: int) -> dict[Cell, int]:
        """Return the numbers that a player sees, by cell: its known values on its own scale, rounded down."""
        table, scale, known = self.table, self.scales[player], self.known[player]
        return {(r, p): int(table[r][p] * scale) for r, p in self.cells if known[r][p]}

    def own_best(self, player: int) -> Assignment:
        """Return the assignment that looks best to the player alone. A cell that the player does not know counts as 50.

        Several assignments may look equally good; for n = 3 this happens in most games. The choice between them decides
        whether a table obeys the rule of the deal. To choose as the published game does, `own_best` applies `optimum`
        to the rows and columns in their original order. Players see the table in another order (`generator.relabel`).
        """
        reviewers, papers = (order or tuple(range(self.size)) for order in self.order)
        looks = np.where(self.known[player], self.table, UNKNOWN)[np.ix_(reviewers, papers)]
        chosen = dict(zip(papers, (reviewers[place] for place in optimum(looks)), strict=True))
        return tuple(chosen[paper] for paper in range(self.size))

    @property
    def requires_communication(self) -> bool:
        """True if the best value is more than `MARGIN` times the value of each player's own best assignment. This
        condition is called the rule of the deal."""
        best = self.best
        return all(MARGIN * self.value(self.own_best(player)) < best for player in (0, 1))

    def table_text(self, player: int) -> str:
        """Return the player's first observation: a heading and the player's table as CSV. The first row has the short
        names of the papers."""
        seen, papers = self.seen(player), range(self.size)
        rows = [[name, *(str(seen.get((r, p), "")) for p in papers)] for r, name in enumerate(self.reviewers)]
        return "\n".join(["Reviewer Paper Similarity Scores:", *map(",".join, [["", *self.short_papers], *rows])])


def optimum(weights: npt.ArrayLike) -> Assignment:
    """Return the assignment of maximum weight of a square `weights[reviewer][paper]`."""
    reviewers, papers = linear_sum_assignment(np.asarray(weights), maximize=True)
    return tuple(int(reviewer) for reviewer in reviewers[np.argsort(papers)])


def default_names(size: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the papers and reviewers of a game of this size. Names after the eighth are numbered."""
    more = range(len(PAPERS) + 1, size + 1)
    return (*PAPERS[:size], *(f"Paper {k}" for k in more)), (*REVIEWERS[:size], *(f"Reviewer{k}" for k in more))
