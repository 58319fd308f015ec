"""The planner: a scripted player whose decisions follow from the conversation alone. So it is the expert for small
models.

It writes its thoughts before each reply, so that a small model can learn each step by itself: the first pair, the other
pairs, and the better of two plans.
"""

import numpy as np

from slimrl_envs.matching_game.rules.beliefs import USUAL, Beliefs, best_except, looks_best
from slimrl_envs.matching_game.rules.deal import Assignment, Cell, Deal
from slimrl_envs.matching_game.rules.game import Accept, Act, Propose, Reject, Say
from slimrl_envs.matching_game.rules.parser import Parser, ask_for_score
from slimrl_envs.matching_game.rules.protocol import Player
from slimrl_envs.matching_game.rules.shy_partner import NUM_AGAIN

FIRST = 1e5  # a bonus for the first pair, so that a plan has it unless all such plans are refused
IN_ORDER = 1e-3  # a bonus by place, so that among equal plans the one in the order of the table is taken


class Planner(Player):
    """A player that plans, asks about the plan, and proposes it.

    A plan is the assignment with the largest total, where a pair without a number counts `USUAL`. If the largest known
    number is `USUAL` or more, the plan contains its pair. No scale is estimated. The planner asks `num_questions`
    questions, first about pairs of the plan without a number, and then proposes. Its last message is always a proposal.
    After a rejection it asks as many questions as a shy partner wants, and proposes the best other plan.
    """

    def __init__(self, deal: Deal, player: int, max_turns: int, num_questions: int) -> None:
        super().__init__(deal)
        self._parser, self._numbers = Parser(deal), deal.seen(player)
        self._left = deal.cells
        """The pairs that it has not asked about."""
        self._open: Cell | None = None
        self._refused: list[Assignment] = []
        self._num_to_ask = num_questions
        self._turns_left = (max_turns + 1 - player) // 2
        self.thought = ""
        """The reasoning behind its last reply: a first pair, the two best ways to go on, and the plan."""

    def _act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Propose):
            is_good = looks_best(self._beliefs(), heard.assignment)
            return Accept() if is_good or not self._turns_left else Reject()
        if isinstance(heard, Say) and self._open and (numbers := self._parser.numbers(heard.text)):
            # The last number of an answer is the score; earlier numbers may repeat the question. A number that is
            # already known stays.
            self._numbers.setdefault(self._open, numbers[-1])
        self._turns_left -= 1
        plan = self._plan()
        self._open = self._next_question(plan)
        if self._open:
            self._left.remove(self._open)
            self._num_to_ask -= 1
            return Say(ask_for_score(self._deal, self._open))
        self._refused.append(plan)
        self._num_to_ask = NUM_AGAIN
        return Propose(plan)

    def _plan(self) -> Assignment:
        """Return the best plan that is not refused, and store its reasoning in `thought`."""
        beliefs = self._beliefs()
        largest = max(self._numbers, key=lambda cell: self._numbers[cell], default=None)
        if largest and self._numbers[largest] < USUAL:
            largest = None
        if largest:
            beliefs[largest] += FIRST
        plan = best_except(beliefs, self._refused)
        # Where all plans with the largest number are refused, the thought starts with the first pair of the table.
        first = largest if largest in pairs_of(plan) else min(pairs_of(plan))
        beliefs[first] += FIRST
        # With the bonus the runner-up has the first pair too: the thought compares two plans with it.
        other = best_except(beliefs, [*self._refused, plan])
        ways = sorted({beside(first, one) for one in (plan, other) if first in pairs_of(one)})
        goes_on = " or ".join(", ".join(map(self._format_number, way)) for way in ways)
        chosen = ", ".join(f"{self._format_pair(cell)}{' ?' if self._is_open(cell) else ''}" for cell in pairs_of(plan))
        self.thought = f"{self._format_number(first)}. {goes_on}: {chosen}."
        return plan

    def _beliefs(self) -> Beliefs:
        """Return the known numbers, not rescaled, and `USUAL` for cells without a number."""
        size = np.arange(self._deal.size, dtype=np.float64)
        beliefs: Beliefs = USUAL + IN_ORDER * np.outer(size, size)
        for cell, number in self._numbers.items():
            beliefs[cell] = number
        return beliefs

    def _format_number(self, cell: Cell) -> str:
        number = self._numbers.get(cell)
        if number is None:
            return f"{self._format_pair(cell)} {'?' if cell in self._left else 'unknown'}"
        return f"{self._format_pair(cell)} {'' if number >= USUAL else 'low '}{number}"

    def _format_pair(self, cell: Cell) -> str:
        return " ".join(self._deal.names(cell))

    def _is_open(self, cell: Cell) -> bool:
        return cell in self._left and cell not in self._numbers

    def _next_question(self, plan: Assignment) -> Cell | None:
        """Return the next pair to ask about; None when it is time to propose."""
        if not self._turns_left or not self._num_to_ask:
            return None
        # Open pairs of the plan are first, then other open pairs, then pairs with a known number: any question counts.
        return next(iter((*filter(self._is_open, (*pairs_of(plan), *self._left)), *self._left)), None)


def pairs_of(plan: Assignment) -> list[Cell]:
    """Return the pairs of a plan in the order of the papers."""
    return [(reviewer, paper) for paper, reviewer in enumerate(plan)]


def beside(first: Cell, plan: Assignment) -> tuple[Cell, ...]:
    """Return the other pairs of a plan, in the order of the table."""
    return tuple(sorted(pair for pair in pairs_of(plan) if pair != first))
