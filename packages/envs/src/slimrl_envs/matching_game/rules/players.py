"""Scripted players for either seat: the strong expert, and baselines that do not listen.

A player is asked for its next text by `reply(heard)`: `heard` has the other player's acts since, in the
protocol's text; empty at the beginning, and when it has just rejected a proposal itself. A player knows its table
and the words it hears, and nothing else of the deal.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations, product
from typing import Protocol

from slimrl_envs.matching_game.rules.beliefs import (
    Beliefs,
    best_except,
    combine_beliefs,
    gains,
    looks_best,
    own_values,
    worth_of,
)
from slimrl_envs.matching_game.rules.deal import UNKNOWN, Assignment, Deal, optimum
from slimrl_envs.matching_game.rules.game import Accept, Act, Propose, Reject, Say
from slimrl_envs.matching_game.rules.parser import Cell, Parser
from slimrl_envs.matching_game.rules.phrases import ask_for_score, tell_score
from slimrl_envs.matching_game.rules.planner import patient
from slimrl_envs.matching_game.rules.protocol import format_act, parse_heard
from slimrl_envs.matching_game.rules.shy_partner import NUM_AGAIN

RESERVED = NUM_AGAIN + 2  # turns that an asker keeps: to propose, to ask again, to propose again
MIN_GAIN = 0.5  # the least expected gain for which it asks
LEANING = 0.5  # the weight that each rejection adds to the partner's scores


class Player(Protocol):
    """A player of one side of one game."""

    def reply(self, heard: str) -> str:
        """The next act as text."""


class RandomPlayer:
    """A player that proposes a random assignment, another one each turn, and accepts every proposal."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        self._deal, self._rng = deal, rng

    def reply(self, heard: str) -> str:
        if isinstance(parse_heard(heard, self._deal), Propose):
            return format_act(Accept(), self._deal)
        return format_act(Propose(tuple(self._rng.sample(range(self._deal.size), self._deal.size))), self._deal)


class Stubborn:
    """A player that proposes one assignment after the other and listens to no answer. Between proposals it asks as many
    questions as a shy partner wants, in the order of the table. It accepts every proposal."""

    def __init__(self, deal: Deal, proposals: Iterable[Assignment], num_first: int = 0) -> None:
        """Makes a player that asks `num_first` questions before the first proposal."""
        self._deal, self._proposals = deal, iter(proposals)
        self._cells = product(range(deal.size), range(deal.size))
        self._num_to_ask = num_first

    def reply(self, heard: str) -> str:
        if isinstance(parse_heard(heard, self._deal), Propose):
            return format_act(Accept(), self._deal)
        cell = next(self._cells, None) if self._num_to_ask else None
        if cell:
            self._num_to_ask -= 1
            return format_act(Say(ask_for_score(self._deal, cell)), self._deal)
        self._num_to_ask = NUM_AGAIN
        proposal = next(self._proposals, None)
        return format_act(Propose(proposal) if proposal else Say("I have no other idea."), self._deal)


def constant(deal: Deal) -> Stubborn:
    """A player that makes the same proposal in every game, then the same second one, and so on."""
    return Stubborn(deal, permutations(range(deal.size)))


def own_view(deal: Deal, player: int) -> Stubborn:
    """A player that proposes the best assignment by its own view, then the second best, and so on."""
    return Stubborn(deal, _by_own_view(deal, player))


def contrary(deal: Deal, player: int) -> Stubborn:
    """A player that asks as much as a shy partner wants, hears no answer, and avoids all pairs of the best assignment
    by its own view. By the rule of the deal that assignment is often poor."""
    return Stubborn(deal, without_own_pairs(deal, player), num_first=deal.size)


def deaf(deal: Deal, player: int) -> Stubborn:
    """A player that asks as much as a shy partner wants, hears no answer, and proposes the best assignment by its own
    view that may be the optimum. By the rule of the deal a single best-looking assignment is not. Its reward needs no
    listening."""
    return Stubborn(deal, by_the_rule(deal, player), num_first=deal.size)


def by_the_rule(deal: Deal, player: int) -> Iterator[Assignment]:
    """The assignments from the best-looking to the player alone downwards. The first stands last if no other looks as
    good, because the rule of the deal excludes it."""
    beliefs = combine_beliefs(deal.size, own_values(deal.visible_table(player)), {})
    proposals = _by_own_view(deal, player)
    first, second = next(proposals), next(proposals)
    is_alone = worth_of(beliefs, first) > worth_of(beliefs, second)
    yield from (second,) if is_alone else (first, second)
    yield from proposals
    if is_alone:
        yield first


def without_own_pairs(deal: Deal, player: int) -> Iterator[Assignment]:
    """The assignments without any pair of the one that looks best to the player alone; the first, if several do."""
    own = next(_by_own_view(deal, player))
    return (one for one in permutations(range(deal.size)) if all(a != b for a, b in zip(one, own, strict=True)))


def _by_own_view(deal: Deal, player: int) -> Iterator[Assignment]:
    """The assignments from the best-looking to the player alone downwards, as far as `best_except` finds them."""
    beliefs = combine_beliefs(deal.size, own_values(deal.visible_table(player)), {})
    made: list[Assignment] = []
    while (best := best_except(beliefs, made)) not in made:
        made.append(best)
        yield best


class Asker:
    """The strong expert for a shy partner, which estimates both scales, asks for scores one by one, and then proposes.

    It asks about pairs of the best-looking assignment first, then by expected gain, and at least as often as there are
    papers if it has the turns. After a rejection it asks as much as a shy partner wants, and leans towards pairs whose
    scores it has heard. It answers a question about a score.
    """

    def __init__(self, deal: Deal, player: int, max_turns: int) -> None:
        self._deal, self._seen = deal, deal.visible_table(player)
        self._parser = Parser(deal)
        self._own = own_values(self._seen)
        self._told: dict[Cell, int] = {}
        self._asked: set[Cell] = set()
        self._open: Cell | None = None
        self._refused: list[Assignment] = []
        self._num_to_ask = 0
        self._turns_left = (max_turns + 1 - player) // 2
        self._reserved = RESERVED if self._turns_left >= RESERVED + deal.size else 1

    def reply(self, heard: str) -> str:
        act = self._act(parse_heard(heard, self._deal))
        self._turns_left -= isinstance(act, Say | Propose)
        return format_act(act, self._deal)

    def _act(self, heard: Say | Propose | None) -> Act:
        answer = self._listen(heard.text) if isinstance(heard, Say) else ""
        beliefs = combine_beliefs(self._deal.size, self._own, self._told)
        if isinstance(heard, Propose):
            return Accept() if looks_best(beliefs, heard.assignment) or not self._turns_left else Reject()
        cell = self._next_question(beliefs)
        if cell:
            self._asked.add(cell)
            self._open = cell
            return Say(f"{answer}{ask_for_score(self._deal, cell)}")
        # A rejection means that the partner sees less in the plan. So its scores count more with each.
        liked = combine_beliefs(self._deal.size, {}, self._told) - UNKNOWN
        leaning = beliefs + LEANING * len(self._refused) * liked
        self._refused.append(best_except(leaning, self._refused))
        self._num_to_ask = NUM_AGAIN
        return Propose(self._refused[-1])

    def _next_question(self, beliefs: Beliefs) -> Cell | None:
        """The pair that promises most; None when it is time to propose."""
        if self._turns_left == 1 or (not self._num_to_ask and (self._refused or self._turns_left <= self._reserved)):
            return None
        size = range(self._deal.size)
        cells = [cell for cell in product(size, size) if cell not in self._asked]
        gained = gains(beliefs, [cell for cell in cells if cell not in self._own])
        plan = optimum(beliefs)
        best = max(gained, key=lambda cell: (plan[cell[1]] == cell[0], gained[cell]), default=None)
        if self._num_to_ask:  # a shy partner wants to be asked again, if only about a pair that both know
            self._num_to_ask -= 1
            return best or next(iter(cells), None)
        if len(self._asked) < self._deal.size:
            return best or next(iter(cells), None)
        is_worth_it = best is not None and gained[best] >= MIN_GAIN
        return best if is_worth_it or self._reserved == 1 else None  # no turn to keep: asking costs nothing

    def _listen(self, text: str) -> str:
        """The answer to a question in the text, if there is one. The text's last number is kept as the score asked
        for."""
        numbers, cell = self._parser.numbers(text), self._open
        if cell and numbers:
            self._told[cell] = numbers[-1]
        self._open = None
        cells = self._parser.topics(text).cells
        return f"{tell_score(self._deal, cells[0], self._seen)} " if cells else ""


SCRIPTS: dict[str, Callable[[Deal, int, int], Player]] = {
    "constant": lambda deal, player, max_turns: constant(deal),
    "own-view": lambda deal, player, max_turns: own_view(deal, player),
    "contrary": lambda deal, player, max_turns: contrary(deal, player),
    "deaf": lambda deal, player, max_turns: deaf(deal, player),
    "planner": patient,
    "solver": Asker,
}
"""The players by name, made from the deal, the seat and the number of messages: four that do not listen, the planner,
and the strong expert."""
