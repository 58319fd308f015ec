"""A scripted player whose rule can be read off the conversation: the expert for small models. It plans, asks, proposes.

What it thinks before it speaks is written down, so that a small model can learn each step by itself: the pair to begin
with, how to go on, which of two ways is better.
"""

import numpy as np

from slimrl.environments.matching_game.rules.beliefs import USUAL, Beliefs, best_except, looks_best
from slimrl.environments.matching_game.rules.deal import Assignment, Deal
from slimrl.environments.matching_game.rules.game import Accept, Act, Propose, Reject, Say
from slimrl.environments.matching_game.rules.parser import Cell, Parser
from slimrl.environments.matching_game.rules.phrases import ask_for_score, names_of
from slimrl.environments.matching_game.rules.protocol import format_act, parse_heard
from slimrl.environments.matching_game.rules.shy_partner import NUM_AGAIN

FIRST = 1e5  # what the first pair counts besides: a plan has it, unless all of those are refused
IN_ORDER = 1e-3  # of plans that look the same, the one in the order of the table


class Planner:
    """Plans, asks about the plan, and proposes it.

    A plan is the assignment of the largest total, where a pair without a number counts `USUAL`; but the pair of the
    largest number, in the table and in the answers, is always part of it if that is `USUAL` or more. No scale is worked
    out. It asks `num_questions`, about the pairs of the plan that have no number before others, and proposes the plan;
    with its last message in any case. After a rejection it asks for as much as a shy partner wants, and proposes the
    best other plan.
    """

    def __init__(self, deal: Deal, player: int, max_turns: int, num_questions: int) -> None:
        self._deal, self._parser = deal, Parser(deal)
        numbers = {(r, p): cell for r, row in enumerate(deal.visible_table(player)) for p, cell in enumerate(row)}
        self._numbers = {cell: number for cell, number in numbers.items() if number is not None}
        self._left = list(numbers)
        """Pairs that it has not asked about."""
        self._open: Cell | None = None
        self._refused: list[Assignment] = []
        self._num_to_ask = num_questions
        self._turns_left = (max_turns + 1 - player) // 2
        self.thought = ""
        """How it came to its last reply: a first pair, the two best ways to go on, and the plan."""

    def reply(self, heard: str) -> str:
        return format_act(self._act(parse_heard(heard, self._deal)), self._deal)

    def _act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Propose):
            is_good = looks_best(self._beliefs(), heard.assignment)
            return Accept() if is_good or not self._turns_left else Reject()
        if isinstance(heard, Say) and self._open and (numbers := self._parser.numbers(heard.text)):
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
        """Writes down how it came to it."""
        beliefs, largest = self._beliefs(), self._largest()
        if largest:
            beliefs[largest] += FIRST
        plan = best_except(beliefs, self._refused)
        first = largest if largest in pairs_of(plan) else min(pairs_of(plan))
        beliefs[first] += FIRST
        other = best_except(beliefs, [*self._refused, plan])
        ways = sorted({beside(first, one) for one in (plan, other) if first in pairs_of(one)})
        goes_on = " or ".join(", ".join(map(self._format_number, way)) for way in ways)
        self.thought = f"{self._format_number(first)}. {goes_on}: {self._format_plan(plan)}."
        return plan

    def _beliefs(self) -> Beliefs:
        size = range(self._deal.size)
        beliefs: Beliefs = np.full((len(size), len(size)), float(USUAL))
        beliefs += IN_ORDER * np.outer(size, size)
        for cell, number in self._numbers.items():
            beliefs[cell] = number
        return beliefs

    def _largest(self) -> Cell | None:
        """The pair to begin with; none where all numbers are low."""
        largest = max(self._numbers, key=lambda cell: self._numbers[cell], default=None)
        return largest if largest and self._numbers[largest] >= USUAL else None

    def _format_plan(self, plan: Assignment) -> str:
        """In the order of the papers; `?` where it may ask."""
        return ", ".join(f"{self._format_pair(cell)}{' ?' if self._is_open(cell) else ''}" for cell in pairs_of(plan))

    def _format_number(self, cell: Cell) -> str:
        number = self._numbers.get(cell)
        if number is None:
            return f"{self._format_pair(cell)} {'?' if cell in self._left else 'unknown'}"
        return f"{self._format_pair(cell)} {'' if number >= USUAL else 'low '}{number}"

    def _format_pair(self, cell: Cell) -> str:
        return " ".join(names_of(self._deal, cell))

    def _is_open(self, cell: Cell) -> bool:
        return cell in self._left and cell not in self._numbers

    def _next_question(self, plan: Assignment) -> Cell | None:
        """None when it is time to propose."""
        if not self._turns_left or not self._num_to_ask:
            return None
        return next(iter((*filter(self._is_open, (*pairs_of(plan), *self._left)), *self._left)), None)


def pairs_of(plan: Assignment) -> list[Cell]:
    """In the order of the papers."""
    return [(reviewer, paper) for paper, reviewer in enumerate(plan)]


def beside(first: Cell, plan: Assignment) -> tuple[Cell, ...]:
    """The other pairs of a plan, in the order of the table."""
    return tuple(sorted(pair for pair in pairs_of(plan) if pair != first))


def patient(deal: Deal, player: int, max_turns: int) -> Planner:
    """A planner that asks about all of its plan, and once more, before it proposes."""
    return Planner(deal, player, max_turns, deal.size + 1)
