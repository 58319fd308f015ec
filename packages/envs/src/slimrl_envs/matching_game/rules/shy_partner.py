"""The scripted shy partner. It reveals the score of a pair only if it is asked about this pair, and judges proposals by
its own beliefs.

The partner volunteers no score, makes no proposal, answers about one pair at a time, and replies to any other text with
a question. Its sentences are fixed, with names and scores of the deal. It never repeats the other player's text, so
nobody can choose its words. Repetition, praise, orders and claimed scores do not change its decision about a proposal.
The partner is deterministic for a given seed, and does not use rewards or the true table.
"""

import random

import numpy as np
import numpy.typing as npt

from slimrl_envs.matching_game.rules.beliefs import P_KNOWN, Beliefs, worth_of
from slimrl_envs.matching_game.rules.deal import MAX_VALUE, UNKNOWN, Assignment, Cell, Deal, optimum
from slimrl_envs.matching_game.rules.game import Accept, Act, Propose, Reject, Say
from slimrl_envs.matching_game.rules.language import Parser, Topics, tell_score

NUM_IMAGINED = 64  # the number of random tables from which the threshold is estimated
ROUNDING = 1e-6  # slack, so that a proposal worth exactly the threshold passes
SHARE_TOO_LOW = 0.05  # the share of the best agreements that `low` may reject

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
"""After a rejection, the partner considers proposals again after questions about this many new pairs."""
PAIRS = ("", "one other pair", "two other pairs", "three other pairs")


class ShyPartner:
    """The scripted partner of one game, deterministic for a given `rng`.

    The partner accepts a proposal if its worth by the partner's own beliefs reaches a threshold. `estimate_threshold`
    returns the bounds `high` and `low` of the threshold. Before any question the threshold is `high`, because the other
    player does not know the partner's scores. Each question about a new pair lowers the threshold, and after n pairs in
    a game of n papers it is `low`. Then the other player knows more, so its proposal is probably better in the pairs
    that the partner cannot judge.

    The threshold depends on the beliefs and the number of pairs, and not on words or repetition. Each rejection reveals
    one bit about the beliefs, and costs the other player `NUM_AGAIN` questions. With a price of only one question, a
    player could try the six assignments of a game with three papers one after the other and ignore all answers. This
    would earn more than the player's own best assignment is worth.
    """

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        self._deal, self._seen, self._rng, self._parser = deal, deal.seen(player), rng, Parser(deal)
        self._beliefs = beliefs_of(deal, player)
        self._high, self._low = estimate_threshold(self._beliefs, ~np.array(deal.known[player]), rng)
        self._asked: set[Cell] = set()
        self._num_wanted = 0  # questions that it wants before it considers a proposal again
        self._wants_answer = False
        # The reviewer or the paper of a question that named only one of the two; the next message may name the other.
        self._half: tuple[int | None, int | None] = None, None
        self._to_begin: tuple[str, ...] = OPENINGS

    def act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Propose):
            return self._judge(heard.assignment)
        if isinstance(heard, Say):
            return Say(self._answer(heard.text))
        self._wants_answer = True
        return Say(self._rng.choice(self._to_begin))

    def _judge(self, assignment: Assignment) -> Act:
        """Return the answer to a proposal. After a rejection, the partner rejects all further proposals until it is
        asked about `NUM_AGAIN` new pairs, or about all pairs if fewer are left."""
        begin = NOT_YET
        if not self._num_wanted:
            share = min(1.0, len(self._asked) / self._deal.size)
            threshold = self._high + share * (min(self._high, self._low) - self._high) - ROUNDING
            if worth_of(self._beliefs, assignment) >= threshold:
                return Accept()
            self._num_wanted = min(NUM_AGAIN, self._deal.size**2 - len(self._asked))
            begin = TOO_LOW
        wish = "What else could you propose?"
        if self._num_wanted:
            wish = f"Before you propose again, ask me about {PAIRS[self._num_wanted]}. Which one first?"
        self._to_begin = tuple(f"{word}{wish}" for word in begin)
        return Reject()

    def _answer(self, text: str) -> str:
        """Return the answer to a message: one score, or a question."""
        asked = self._parser.topics(text, answers=self._wants_answer)
        cell = self._cell(asked)
        self._wants_answer = cell is None
        if cell:
            self._half = None, None
            # A repeated question about a pair lowers neither the number of wanted questions nor the threshold.
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
        """Return the pair to answer: the first exact pair, or a reviewer and a paper that were named in two messages. A
        reviewer or a paper without its counterpart is remembered for the next message, and None is returned."""
        if asked.cells:
            return asked.cells[0]
        reviewer = self._half[0] if asked.reviewer is None else asked.reviewer
        paper = self._half[1] if asked.paper is None else asked.paper
        if reviewer is not None and paper is not None:
            return reviewer, paper
        self._half = reviewer, paper
        return None


def beliefs_of(deal: Deal, player: int) -> Beliefs:
    """Return the beliefs of a player that knows its own scale: numbers divided by the scale, and 50 for unseen
    cells."""
    beliefs = np.full((deal.size, deal.size), float(UNKNOWN))
    for cell, number in deal.seen(player).items():
        beliefs[cell] = number / deal.scales[player]
    return beliefs


def estimate_threshold(beliefs: Beliefs, unseen: npt.NDArray[np.bool_], rng: random.Random) -> tuple[float, float]:
    """Estimate the bounds `high` and `low` of the threshold for a player with these beliefs. The method is Monte Carlo
    over tables that agree with the beliefs.

    The other player knows an `unseen` cell with probability 0.4. In that case all values are equally likely; otherwise
    the cell is worth 50. Two players who know the whole table would agree on its best assignment. `high` is the median
    worth of this assignment to the player. `low` is 50 for each pair, the worth of an assignment of unseen cells. But
    `low` is at most the 5% quantile of the best assignment's worth, since in small games the best assignment often
    looks even worse than 50 for each pair to one player.
    """
    numbers = np.random.default_rng(rng.getrandbits(64))
    worths = []
    for _ in range(NUM_IMAGINED):
        others = unseen & (numbers.random(beliefs.shape) < P_KNOWN)
        values = numbers.integers(0, MAX_VALUE + 1, beliefs.shape)
        worths.append(worth_of(beliefs, optimum(np.where(others, values, beliefs))))
    low, middle = np.quantile(worths, [SHARE_TOO_LOW, 0.5])
    return float(middle), min(float(UNKNOWN * len(beliefs)), float(low))
