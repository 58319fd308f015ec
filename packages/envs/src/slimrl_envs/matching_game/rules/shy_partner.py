"""The scripted shy partner. It reveals a score only when asked for that pair, and judges proposals by its own view.

It volunteers nothing, proposes nothing, answers one pair at a time, and meets anything else with a question. Its
sentences are its own, with names and scores of the deal. It repeats nothing that it hears, so nothing can be put into
its mouth. `AcceptanceThreshold` decides about proposals: repetition, praise, orders and claimed scores change nothing.
The partner is deterministic under its seed, and knows nothing of rewards or of the true table.
"""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slimrl_envs.matching_game.rules.beliefs import P_KNOWN, Beliefs, worth_of
from slimrl_envs.matching_game.rules.deal import MAX_VALUE, UNKNOWN, Assignment, Cell, Deal, optimum
from slimrl_envs.matching_game.rules.game import Accept, Act, Propose, Reject, Say
from slimrl_envs.matching_game.rules.parser import Parser, Topics, tell_score
from slimrl_envs.matching_game.rules.protocol import Player

NUM_IMAGINED = 64  # tables that are imagined to estimate the threshold
ROUNDING = 1e-6  # slack, so that a proposal worth exactly the threshold passes
SHARE_TOO_LOW = 0.05  # the share of imagined best agreements that `low` may turn down

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
"""The number of other pairs it wants to be asked about after a rejection, before it looks at a proposal again."""
PAIRS = ("", "one other pair", "two other pairs", "three other pairs")


@dataclass(frozen=True, slots=True)
class AcceptanceThreshold:
    """The worth by its own beliefs that the partner asks of a proposal.

    Before any question, the other player knows nothing of what the partner sees. The threshold is then `high`: the
    median worth to the partner of the best agreement of two players who know everything. Each pair that the partner has
    been asked about lowers it. After as many pairs as there are papers it is `low`: 50 a pair, the worth of an
    assignment of which the partner sees nothing. By then the other player knows more, so its proposal is probably
    better in the pairs that the partner cannot judge; to insist on more would waste that knowledge. In small games even
    the best agreements often look worse to one side, so `low` is never above the worth of all but 5% of these.

    The threshold depends on the beliefs and the number of pairs, never on words or how often they come. Repeating a
    proposal changes nothing, and each rejection, one bit about the beliefs, costs `NUM_AGAIN` questions. If it cost
    one, then with three papers and so six assignments a player that tries one after the other and listens to no answer
    would earn more than its own best assignment is worth.
    """

    high: float
    low: float
    num_papers: int

    def after_questions(self, num_asked: int) -> float:
        """Return the threshold when so many different pairs have been asked about: linear from `high` to `low`."""
        share = min(1.0, num_asked / self.num_papers)
        return self.high + share * (min(self.high, self.low) - self.high) - ROUNDING


class ShyPartner(Player):
    """The scripted partner of one game, deterministic under its `rng`."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        super().__init__(deal)
        self._seen, self._rng, self._parser = deal.seen(player), rng, Parser(deal)
        self._beliefs = beliefs_of(deal, player)
        self._threshold = estimate_threshold(self._beliefs, ~np.array(deal.known[player]), rng)
        self._asked: set[Cell] = set()
        self._num_wanted = 0  # questions that it wants before it looks at a proposal again
        self._wants_answer = False
        # The reviewer or the paper of a question that named only one of the two; the next may name the other.
        self._half: tuple[int | None, int | None] = None, None
        self._to_begin: tuple[str, ...] = OPENINGS

    def _act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Propose):
            return self._judge(heard.assignment)
        if isinstance(heard, Say):
            return Say(self._answer(heard.text))
        self._wants_answer = True
        return Say(self._rng.choice(self._to_begin))

    def _judge(self, assignment: Assignment) -> Act:
        """Return the answer to a proposal. After a rejection it looks at no other before it was asked about more pairs,
        as long as there are some."""
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
        """Return the answer to a message: one score, or a question back."""
        asked = self._parser.topics(text, answers=self._wants_answer)
        cell = self._cell(asked)
        self._wants_answer = cell is None
        if cell:
            self._half = None, None
            # A pair asked about twice pays for no other look at a proposal, and lowers no threshold.
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
        """Return the one pair to answer: the first exact one, or one whose halves came in two messages. A half is kept
        for the next message."""
        if asked.cells:
            return asked.cells[0]
        reviewer = self._half[0] if asked.reviewer is None else asked.reviewer
        paper = self._half[1] if asked.paper is None else asked.paper
        if reviewer is not None and paper is not None:
            return reviewer, paper
        self._half = reviewer, paper
        return None


def beliefs_of(deal: Deal, player: int) -> Beliefs:
    """Return the beliefs of a player that knows its own scale: its numbers over the scale, and 50 where it sees
    nothing."""
    beliefs = np.full((deal.size, deal.size), float(UNKNOWN))
    for cell, number in deal.seen(player).items():
        beliefs[cell] = number / deal.scales[player]
    return beliefs


def estimate_threshold(beliefs: Beliefs, unseen: npt.NDArray[np.bool_], rng: random.Random) -> AcceptanceThreshold:
    """Return the acceptance threshold of a player with these beliefs, by a Monte Carlo estimate over tables that agree
    with them.

    Where the player sees nothing, the other knows the cell with probability 0.4, and then any value is as likely;
    otherwise it is worth 50. The best assignment of each table is where full knowledge would lead.
    """
    numbers = np.random.default_rng(rng.getrandbits(64))
    worths = []
    for _ in range(NUM_IMAGINED):
        others = unseen & (numbers.random(beliefs.shape) < P_KNOWN)
        values = numbers.integers(0, MAX_VALUE + 1, beliefs.shape)
        worths.append(worth_of(beliefs, optimum(np.where(others, values, beliefs))))
    low, middle = np.quantile(worths, [SHARE_TOO_LOW, 0.5])
    return AcceptanceThreshold(float(middle), min(float(UNKNOWN * len(beliefs)), float(low)), len(beliefs))
