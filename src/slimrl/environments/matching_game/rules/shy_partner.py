"""The scripted shy partner: tells a score only to who asks for that very pair, and judges proposals by what it sees.

It volunteers nothing and proposes nothing, answers one pair at a time, and meets anything else with a question. What it
says are sentences of its own, with names and scores of the deal: nothing of what it hears is repeated, so nothing can
be put into its mouth. How it judges a proposal is the subject of `AcceptanceThreshold`: neither repetition nor praise,
no order, and no score that somebody claims changes that. Deterministic under its seed. Knows nothing of rewards or of
the true table.
"""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slimrl.environments.matching_game.rules.beliefs import P_KNOWN, Beliefs, worth_of
from slimrl.environments.matching_game.rules.deal import MAX_VALUE, UNKNOWN, Assignment, Deal, optimum
from slimrl.environments.matching_game.rules.game import Accept, Act, Propose, Reject, Say
from slimrl.environments.matching_game.rules.parser import Cell, Parser, Topics
from slimrl.environments.matching_game.rules.phrases import tell_score
from slimrl.environments.matching_game.rules.protocol import format_act, parse_heard

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
TOO_LOW = ("By what I see, that is too low. ", "That looks too low from here. ")
NOT_YET = ("I would rather be asked first. ", "That is too soon. ")
NUM_AGAIN = 3
"""After a rejection: how many other pairs it wants to be asked about before it looks at a proposal again."""
PAIRS = ("", "one other pair", "two other pairs", "three other pairs")


@dataclass(frozen=True, slots=True)
class AcceptanceThreshold:
    """What the partner can expect, and so what it asks of a proposal, in worth by its own beliefs.

    Before it was asked for anything, the other player knows nothing of what it sees, and talking is all to be gained
    yet: it can expect what the best agreement of two who know everything is worth to it, as likely more as less
    (`high`). Each pair that it has been asked about since leaves less to be gained. When there were as many as there
    are papers it asks for no more than `low`: 50 a pair, what it knows of an assignment of which it sees nothing. The
    other player made the proposal knowing more by then, so that in the pairs which the partner cannot judge it is
    probably better than that; to insist on more would throw this knowledge away. Where few pairs count, even the best
    agreements often look worse to one side, so `low` is never above what all but 5% of those are worth.

    It depends on the beliefs and on how many pairs were asked about, never on what was said or how often: to propose
    again and again moves nothing, and each rejection, one bit about the beliefs, has to be paid for with `NUM_AGAIN`
    questions. Were it one, then in a game of three papers, which has six assignments, whoever goes through what looks
    best to itself and listens to no answer would earn more than what looks best to it is worth.
    """

    high: float
    low: float
    num_papers: int

    def after_questions(self, num_asked: int) -> float:
        """When so many different pairs have been asked about."""
        share = min(1.0, num_asked / self.num_papers)
        return self.high + share * (min(self.high, self.low) - self.high) - ROUNDING


class ShyPartner:
    """Plays one side of one game. For `reply` see `players.Player`."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        self._deal, self._seen, self._rng = deal, deal.visible_table(player), rng
        self._parser = Parser(deal)
        self._beliefs = beliefs_of(deal, player)
        self._threshold = estimate_threshold(self._beliefs, ~np.array(deal.known[player]), rng)
        self._asked: set[Cell] = set()
        self._num_wanted = 0  # pairs to be asked about before it looks at a proposal
        self._wants_answer = False
        self._half: tuple[int | None, int | None] = None, None
        self._to_begin: tuple[str, ...] = OPENINGS

    def reply(self, heard: str) -> str:
        return format_act(self._act(parse_heard(heard, self._deal)), self._deal)

    def _act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Propose):
            return self._judge(heard.assignment)
        if isinstance(heard, Say):
            return Say(self._answer(heard.text))
        self._wants_answer = True
        return Say(self._rng.choice(self._to_begin))

    def _judge(self, assignment: Assignment) -> Act:
        """After a rejection it wants to be asked about other pairs, as long as there are some, before it looks at a
        proposal again."""
        begin = NOT_YET
        if not self._num_wanted:
            if worth_of(self._beliefs, assignment) >= self._threshold.after_questions(len(self._asked)):
                return Accept()
            self._num_wanted = min(NUM_AGAIN, self._deal.size**2 - len(self._asked))
            begin = TOO_LOW
        wish = "What else could you propose?"
        if self._num_wanted:
            wish = f"Before you propose again, ask me about {PAIRS[self._num_wanted]}. Which one first?"
        self._to_begin = tuple(f"{word}{wish}" for word in begin)
        return Reject()

    def _answer(self, text: str) -> str:
        asked = self._parser.topics(text, answers=self._wants_answer)
        cell = self._cell(asked)
        self._wants_answer = cell is None
        if cell:
            self._half = None, None
            if cell not in self._asked:
                self._num_wanted = max(0, self._num_wanted - 1)
            self._asked.add(cell)
            return f"{ONE_AT_A_TIME if len(asked.cells) > 1 else ''}{tell_score(self._deal, cell, self._seen)}"
        reviewer, paper = self._half
        if reviewer is not None:
            return f"Which paper are you interested in for {self._deal.short_reviewers[reviewer]}?"
        if paper is not None:
            return f"Which reviewer are you interested in for {self._deal.short_papers[paper]}?"
        return self._rng.choice(VAGUE)

    def _cell(self, asked: Topics) -> Cell | None:
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


def beliefs_of(deal: Deal, player: int) -> Beliefs:
    """The table as the player sees it, in values: what it sees, over its scale; 50 where it sees nothing."""
    numbers = [
        [UNKNOWN if cell is None else cell / deal.scales[player] for cell in row] for row in deal.visible_table(player)
    ]
    return np.array(numbers, dtype=np.float64)


def estimate_threshold(beliefs: Beliefs, unseen: npt.NDArray[np.bool_], rng: random.Random) -> AcceptanceThreshold:
    """What agreements are worth to a player with this beliefs, by imagining tables that agree with what it sees.

    Where it sees nothing, the other player knows the cell with probability 0.4, and then any value is as likely; else
    it is worth 50. The best assignment of each table is where full knowledge would lead.
    """
    numbers = np.random.default_rng(rng.getrandbits(64))
    worths = []
    for _ in range(NUM_IMAGINED):
        others = unseen & (numbers.random(beliefs.shape) < P_KNOWN)
        values = numbers.integers(0, MAX_VALUE + 1, beliefs.shape)
        worths.append(worth_of(beliefs, optimum(np.where(others, values, beliefs))))
    low, middle = np.quantile(worths, [SHARE_TOO_LOW, 0.5])
    return AcceptanceThreshold(float(middle), min(float(UNKNOWN * len(beliefs)), float(low)), len(beliefs))
