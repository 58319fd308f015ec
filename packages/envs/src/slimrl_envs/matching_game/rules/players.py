"""Scripted players for both sides: two experts, and baselines that ignore answers."""

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations, repeat

import numpy as np

from slimrl_envs.matching_game.rules.beliefs import (
    USUAL,
    Beliefs,
    best_except,
    combine_beliefs,
    gains,
    own_values,
    worth_of,
)
from slimrl_envs.matching_game.rules.deal import UNKNOWN, Assignment, Cell, Deal, optimum
from slimrl_envs.matching_game.rules.game import Act, Player, Propose, Say
from slimrl_envs.matching_game.rules.language import Parser, ask_for_score
from slimrl_envs.matching_game.rules.shy_partner import NUM_AGAIN

RESERVED = NUM_AGAIN + 2  # turns that `Asker` reserves to propose, to ask again and to propose again
MIN_GAIN = 0.5  # the least expected gain for which `Asker` asks
LEANING = 0.5  # the weight that each rejection adds to the partner's scores
FIRST = 1e5  # the planner's bonus for the first pair: a plan has this pair unless all plans with it are refused
IN_ORDER = 1e-3  # the planner's bonus by place, which decides between equal plans by the order of the table


class Stubborn:
    """A player that makes the `proposals` one after the other and ignores answers.

    The player asks `num_first` questions before the first proposal and `num_again` questions between two proposals. The
    questions are about the cells in the order of the table.
    """

    def __init__(
        self, deal: Deal, proposals: Iterable[Assignment], num_first: int = 0, num_again: int = NUM_AGAIN
    ) -> None:
        self._deal, self._proposals, self._cells = deal, iter(proposals), iter(deal.cells)
        self._num_to_ask, self._num_again = num_first, num_again

    def act(self, heard: Say | Propose | None) -> Act:
        if self._num_to_ask and (cell := next(self._cells, None)):
            self._num_to_ask -= 1
            return Say(ask_for_score(self._deal, cell))
        self._num_to_ask = self._num_again
        proposal = next(self._proposals, None)
        return Propose(proposal) if proposal else Say("I have no other idea.")


def propose_at_random(deal: Deal, rng: random.Random) -> Stubborn:
    """Return a player that proposes a new random assignment in each turn and asks no questions."""
    return Stubborn(deal, (tuple(rng.sample(range(deal.size), deal.size)) for _ in repeat(None)), num_again=0)


def by_own_view(deal: Deal, player: int) -> Iterator[Assignment]:
    """Yield assignments by their worth to the player alone, the best first. Stop when `best_except` finds no new
    one."""
    beliefs = combine_beliefs(deal.size, own_values(deal.seen(player)), {})
    made: list[Assignment] = []
    while (best := best_except(beliefs, made)) not in made:
        made.append(best)
        yield best


def by_the_rule(deal: Deal, player: int) -> Iterator[Assignment]:
    """Yield the assignments of `by_own_view`. If the first assignment looks better than all others, yield it last,
    because by the rule of the deal it cannot be the optimum."""
    beliefs = combine_beliefs(deal.size, own_values(deal.seen(player)), {})
    proposals = by_own_view(deal, player)
    first, second = next(proposals), next(proposals)
    is_alone = worth_of(beliefs, first) > worth_of(beliefs, second)
    yield from (second,) if is_alone else (first, second)
    yield from proposals
    if is_alone:
        yield first


def without_own_pairs(deal: Deal, player: int) -> Iterator[Assignment]:
    """Yield the assignments that share no pair with the first assignment of `by_own_view`."""
    own = next(by_own_view(deal, player))
    return (one for one in permutations(range(deal.size)) if all(a != b for a, b in zip(one, own, strict=True)))


class Expert:
    """A player that asks about scores one by one and then proposes a plan. Its last message is always a proposal. After
    a rejection it asks as many questions as a shy partner wants, and proposes another plan. It answers no questions and
    no proposals, since the scripted partner makes none."""

    def __init__(self, deal: Deal, player: int, max_turns: int, num_questions: int = 0) -> None:
        self._deal, self._parser, self._seen = deal, Parser(deal), deal.seen(player)
        self._told: dict[Cell, int] = {}
        self._left = deal.cells  # the pairs that it has not asked about
        self._open: Cell | None = None
        self._refused: list[Assignment] = []
        self._num_to_ask = num_questions
        self._turns_left = (max_turns + 1 - player) // 2

    def act(self, heard: Say | Propose | None) -> Act:
        # The last number of an answer is the score; earlier numbers may repeat the question.
        if self._open and isinstance(heard, Say) and (numbers := self._parser.numbers(heard.text)):
            self._told[self._open] = numbers[-1]
        beliefs = self._beliefs()
        self._turns_left -= 1
        self._open = self._next_question(beliefs) if self._turns_left else None
        if self._open is None:
            self._refused.append(self._plan(beliefs))
            self._num_to_ask = NUM_AGAIN
            return Propose(self._refused[-1])
        self._left.remove(self._open)
        self._num_to_ask = max(0, self._num_to_ask - 1)
        return Say(ask_for_score(self._deal, self._open))

    def _beliefs(self) -> Beliefs:
        raise NotImplementedError

    def _next_question(self, beliefs: Beliefs) -> Cell | None:
        """Return the next pair to ask about; None when it is time to propose."""
        raise NotImplementedError

    def _plan(self, beliefs: Beliefs) -> Assignment:
        raise NotImplementedError


class Asker(Expert):
    """The strong expert for a shy partner. It estimates both scales.

    The first questions are about pairs of the assignment that looks best, the next ones are chosen by expected gain.
    There is at least one question for each paper if there are enough turns. After a rejection the partner's scores get
    more weight.
    """

    def __init__(self, deal: Deal, player: int, max_turns: int) -> None:
        super().__init__(deal, player, max_turns)
        self._own = own_values(self._seen)
        self._reserved = RESERVED if self._turns_left >= RESERVED + deal.size else 1

    def _beliefs(self) -> Beliefs:
        return combine_beliefs(self._deal.size, self._own, self._told)

    def _next_question(self, beliefs: Beliefs) -> Cell | None:
        if not self._num_to_ask and (self._refused or self._turns_left < self._reserved):
            return None
        gained = gains(beliefs, [cell for cell in self._left if cell not in self._own])
        plan = optimum(beliefs)
        best = max(gained, key=lambda cell: (plan[cell[1]] == cell[0], gained[cell]), default=None)
        # After a rejection a shy partner wants more questions, even if they are about pairs that both players know.
        if self._num_to_ask or self._deal.size**2 - len(self._left) < self._deal.size:
            return best or next(iter(self._left), None)
        is_worth_it = best is not None and gained[best] >= MIN_GAIN
        return best if is_worth_it or self._reserved == 1 else None  # without reserved turns a question costs nothing

    def _plan(self, beliefs: Beliefs) -> Assignment:
        # A rejection means that the plan is worth less to the partner. So each rejection raises the weight of the
        # partner's scores.
        liked = combine_beliefs(self._deal.size, {}, self._told) - UNKNOWN
        return best_except(beliefs + LEANING * len(self._refused) * liked, self._refused)


class Planner(Expert):
    """The expert for small models. Its decisions follow from the conversation alone. Before each reply it writes its
    thoughts, so that a small model can learn each step by itself.

    A plan is the assignment with the largest total, where a pair without a number counts as `USUAL`. If the largest
    known number is at least `USUAL`, the plan contains the pair of this number. No scale is estimated. The planner asks
    `num_questions` questions, first about the pairs of the plan that have no number, and then proposes.
    """

    thought = ""
    """The reasoning behind the last reply: the first pair, the two best plans with this pair, and the chosen plan."""

    def _beliefs(self) -> Beliefs:
        """Return the known numbers, not rescaled, and `USUAL` for cells without a number."""
        size = np.arange(self._deal.size, dtype=np.float64)
        beliefs: Beliefs = USUAL + IN_ORDER * np.outer(size, size)
        for cell, number in self._numbers.items():
            beliefs[cell] = number
        return beliefs

    @property
    def _numbers(self) -> dict[Cell, int]:
        return self._seen | self._told | self._seen  # the table's own numbers come first and have priority

    def _next_question(self, beliefs: Beliefs) -> Cell | None:
        if not self._num_to_ask:
            return None
        # Open pairs of the plan are first, then other open pairs, then pairs with a known number: any question counts.
        plan = pairs_of(self._plan(beliefs))
        return next(iter((*filter(self._is_open, (*plan, *self._left)), *self._left)), None)

    def _plan(self, beliefs: Beliefs) -> Assignment:
        """Return the best plan that is not refused, and store its reasoning in `thought`."""
        beliefs, numbers = beliefs.copy(), self._numbers
        largest = max(numbers, key=lambda cell: numbers[cell], default=None)
        if largest and numbers[largest] >= USUAL:
            beliefs[largest] += FIRST
        else:
            largest = None
        plan = best_except(beliefs, self._refused)
        # If all plans with the largest number are refused, the thought starts with the plan's first pair in the table.
        first = largest if largest in pairs_of(plan) else min(pairs_of(plan))
        beliefs[first] += FIRST
        # Because of the bonus, the second-best plan has the first pair, too. The thought compares the two plans.
        other = best_except(beliefs, [*self._refused, plan])
        plans = [pairs_of(one) for one in (plan, other) if first in pairs_of(one)]
        ways = sorted({tuple(sorted(pair for pair in one if pair != first)) for one in plans})
        goes_on = " or ".join(", ".join(map(self._format_number, way)) for way in ways)
        chosen = ", ".join(f"{self._format_pair(cell)}{' ?' if self._is_open(cell) else ''}" for cell in pairs_of(plan))
        self.thought = f"{self._format_number(first)}. {goes_on}: {chosen}."
        return plan

    def _format_number(self, cell: Cell) -> str:
        number = self._numbers.get(cell)
        if number is None:
            return f"{self._format_pair(cell)} {'?' if cell in self._left else 'unknown'}"
        return f"{self._format_pair(cell)} {'' if number >= USUAL else 'low '}{number}"

    def _format_pair(self, cell: Cell) -> str:
        return " ".join(self._deal.names(cell))

    def _is_open(self, cell: Cell) -> bool:
        return cell in self._left and cell not in self._numbers


def pairs_of(plan: Assignment) -> list[Cell]:
    """Return the pairs of a plan in the order of the papers."""
    return [(reviewer, paper) for paper, reviewer in enumerate(plan)]


SCRIPTS: dict[str, Callable[[Deal, int, int, random.Random], Player]] = {
    "random": lambda deal, player, max_turns, rng: propose_at_random(deal, rng),
    "constant": lambda deal, player, max_turns, rng: Stubborn(deal, permutations(range(deal.size))),
    "own-view": lambda deal, player, max_turns, rng: Stubborn(deal, by_own_view(deal, player)),
    "contrary": lambda deal, player, max_turns, rng: Stubborn(deal, without_own_pairs(deal, player), deal.size),
    "deaf": lambda deal, player, max_turns, rng: Stubborn(deal, by_the_rule(deal, player), deal.size),
    "planner": lambda deal, player, max_turns, rng: Planner(deal, player, max_turns, deal.size + 1),
    "solver": lambda deal, player, max_turns, rng: Asker(deal, player, max_turns),
}
"""Functions that make the scripted players, by name. Their arguments are the deal, the player's side, the number of
messages and a random generator. The first five players ignore answers. `planner` asks one question for each pair of a
plan and one more. `solver` is the strong expert. By the rule of the deal, the assignment that looks best to a player is
often poor. So `contrary` avoids all its pairs, and `deaf` proposes it last if it cannot be the optimum."""
