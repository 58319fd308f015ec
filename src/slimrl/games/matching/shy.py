"""The scripted shy partner: tells a score only to who asks for that very pair, and judges proposals by what it sees.

It volunteers nothing, answers one pair at a time, and meets anything else with a question. What it says are sentences
of its own, with names and scores of the deal: nothing of what it hears is repeated, so nothing can be put into its
mouth. Nothing that it hears changes its mind about a proposal either: neither repetition, nor praise, nor an order, nor
a score that somebody claims. Deterministic under its seed. Knows nothing of rewards or of the true table.
"""

import random

import numpy as np
import numpy.typing as npt

from slimrl.games.matching.deal import MAX_VALUE, UNKNOWN, Assignment, Deal, optimum
from slimrl.games.matching.game import Accept, Act, Propose, Reject, Say
from slimrl.games.matching.protocol import written
from slimrl.games.matching.reading import Asked, Cell, Reader
from slimrl.games.matching.sayings import told
from slimrl.games.matching.talkers import heard_act
from slimrl.games.matching.views import P_KNOWN, Weights, worth_of

NUM_IMAGINED = 64
ROUNDING = 1e-6
SHARE_TOO_LOW = 0.05  # of the best agreements that it imagines: their worth is not asked for

OPENINGS = (
    "Hello. Which reviewer and paper would you like to know about?",
    "Hi. Tell me a reviewer and a paper, and I will look.",
)
VAGUE = (
    "Which reviewer and which paper are you interested in?",
    "Can you ask about one reviewer and one paper?",
)
ONE_AT_A_TIME = "One at a time, please. "
TOO_LOW = (
    "By what I see, that is too low. Which pair would you like to know about?",
    "I see too little in that for me. Is there a pair that you want to ask about?",
)


class ShyPartner:
    """Plays one side of one game. For `reply` see `talkers.Player`."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        self._deal, self._seen, self._rng = deal, deal.seen(player), rng
        self._reader = Reader(deal)
        self._view = view_of(deal, player)
        self._least = least_acceptable(self._view, ~np.array(deal.known[player]), rng)
        self._has_asked = False
        self._half: tuple[int | None, int | None] = None, None
        self._to_begin = OPENINGS

    def reply(self, heard: str) -> str:
        return written(self._act(heard_act(heard, self._deal)), self._deal)

    def _act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Propose):
            return self._judged(heard.assignment)
        if isinstance(heard, Say):
            return Say(self._answer(heard.text))
        self._has_asked = True
        return Say(self._rng.choice(self._to_begin))

    def _judged(self, assignment: Assignment) -> Act:
        """Accepts what is worth at least `least_acceptable` by its view, now as at any other time."""
        if worth_of(self._view, assignment) >= self._least:
            return Accept()
        self._to_begin = TOO_LOW
        return Reject()

    def _answer(self, text: str) -> str:
        asked = self._reader.asked(text, answers=self._has_asked)
        cell = self._cell(asked)
        self._has_asked = cell is None
        if cell:
            self._half = None, None
            return f"{ONE_AT_A_TIME if len(asked.cells) > 1 else ''}{told(self._deal, cell, self._seen)}"
        reviewer, paper = self._half
        if reviewer is not None:
            return f"Which paper are you interested in for {self._deal.short_reviewers[reviewer]}?"
        if paper is not None:
            return f"Which reviewer are you interested in for {self._deal.short_papers[paper]}?"
        return self._rng.choice(VAGUE)

    def _cell(self, asked: Asked) -> Cell | None:
        """The one pair to answer: the first that is exact, or the two halves of one, of which it has asked for the
        second. Keeps a half."""
        if asked.cells:
            return asked.cells[0]
        reviewer = self._half[0] if asked.reviewer is None else asked.reviewer
        paper = self._half[1] if asked.paper is None else asked.paper
        if reviewer is not None and paper is not None:
            return reviewer, paper
        self._half = reviewer, paper
        return None


def view_of(deal: Deal, player: int) -> Weights:
    """The table as the player sees it, in values: what it sees, over its scale; 50 where it sees nothing."""
    numbers = [[UNKNOWN if cell is None else cell / deal.scales[player] for cell in row] for row in deal.seen(player)]
    return np.array(numbers, dtype=np.float64)


def least_acceptable(view: Weights, unseen: npt.NDArray[np.bool_], rng: random.Random) -> float:
    """What a proposal must be worth by the partner's view: what it can expect, which is the lower of two things.

    The first is 50 a pair, what it knows of an assignment of which it sees nothing. A proposal that looks no worse is
    probably better than that, for the other player made it, who had reasons in the pairs that the partner does not see.
    To ask for more, such as the partner's own optimum, would throw those reasons away. But where few pairs count, even
    the best agreement often has a pair that looks poor to the partner alone, so the second is what such agreements are
    worth by its view: it imagines tables that agree with what it sees (where it sees nothing, the other player knows
    the cell with probability 0.4, and then any value is as likely; else it is worth 50) and takes the best assignment
    of each; it asks for no more than all but the lowest 5% of these have. The bar depends on the view alone, never on
    what was said or how often: a rejection tells one bit about the view, and proposing the same again tells nothing.
    """
    numbers = np.random.default_rng(rng.getrandbits(64))
    worths = []
    for _ in range(NUM_IMAGINED):
        others = unseen & (numbers.random(view.shape) < P_KNOWN)
        values = numbers.integers(0, MAX_VALUE + 1, view.shape)
        worths.append(worth_of(view, optimum(np.where(others, values, view))))
    return min(float(UNKNOWN * len(view)), float(np.quantile(worths, SHARE_TOO_LOW))) - ROUNDING
