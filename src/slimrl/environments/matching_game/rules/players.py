"""Scripted players for either seat: the strong expert, and those who do not listen, with whom to compare.

A player is asked for its next text by `reply(heard)`: `heard` is what the other player has done since, in the
protocol's text; empty at the beginning, and when it has just rejected a proposal itself. A player knows what it sees
and hears, and nothing else of the deal.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations, product
from typing import Protocol

from slimrl.environments.matching_game.rules.beliefs import (
    Beliefs,
    best_except,
    combine_beliefs,
    gains,
    looks_best,
    own_values,
    worth_of,
)
from slimrl.environments.matching_game.rules.deal import UNKNOWN, Assignment, Deal, optimum
from slimrl.environments.matching_game.rules.game import Accept, Act, Propose, Reject, Say
from slimrl.environments.matching_game.rules.parser import Cell, Parser
from slimrl.environments.matching_game.rules.phrases import ask_for_score, tell_score
from slimrl.environments.matching_game.rules.planner import patient
from slimrl.environments.matching_game.rules.protocol import format_act, parse_heard
from slimrl.environments.matching_game.rules.shy_partner import NUM_AGAIN

RESERVED = NUM_AGAIN + 2  # turns that an asker keeps: to propose, to ask again, to propose again
MIN_GAIN = 0.5  # in expected value: what a question must promise
LEANING = 0.5  # after each rejection, what the partner has told weighs so much more


class Player(Protocol):
    """Plays one side of one game."""

    def reply(self, heard: str) -> str:
        """Its next act, in the protocol's text."""


class RandomPlayer:
    """Proposes an assignment at random, another one each turn; accepts whatever is proposed."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        self._deal, self._rng = deal, rng

    def reply(self, heard: str) -> str:
        if isinstance(parse_heard(heard, self._deal), Propose):
            return format_act(Accept(), self._deal)
        return format_act(Propose(tuple(self._rng.sample(range(self._deal.size), self._deal.size))), self._deal)


class Stubborn:
    """Proposes one assignment after the other, and listens to no answer: of questions it asks as many as a shy partner
    wants to hear before it looks at the next proposal, in the order of the table. Accepts whatever is proposed."""

    def __init__(self, deal: Deal, proposals: Iterable[Assignment], num_first: int = 0) -> None:
        """`num_first` questions come before the first proposal."""
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
    """The same proposal in every game, then the same second one, and so on."""
    return Stubborn(deal, permutations(range(deal.size)))


def own_view(deal: Deal, player: int) -> Stubborn:
    """What looks best to it alone, then what looks second best, and so on: the mark that whoever listens must pass."""
    return Stubborn(deal, _by_own_view(deal, player))


def contrary(deal: Deal, player: int) -> Stubborn:
    """It asks as much as a shy partner wants to have been asked, hears no answer, and proposes the contrary of what
    looks best to it alone: by the rule of the deal that is often poor."""
    return Stubborn(deal, without_own_pairs(deal, player), num_first=deal.size)


def deaf(deal: Deal, player: int) -> Stubborn:
    """It asks as much as a shy partner wants to have been asked, hears no answer, and proposes what looks best to it
    alone and may be the optimum: by the rule of the deal that which looks better than all others is not. What this
    earns needs no listening."""
    return Stubborn(deal, by_the_rule(deal, player), num_first=deal.size)


def by_the_rule(deal: Deal, player: int) -> Iterator[Assignment]:
    """What looks best to the player alone, then what looks second best ...; the first of them last, if none looks as
    good."""
    beliefs = combine_beliefs(deal.size, own_values(deal.visible_table(player)), {})
    proposals = _by_own_view(deal, player)
    first, second = next(proposals), next(proposals)
    is_alone = worth_of(beliefs, first) > worth_of(beliefs, second)
    yield from (second,) if is_alone else (first, second)
    yield from proposals
    if is_alone:
        yield first


def without_own_pairs(deal: Deal, player: int) -> Iterator[Assignment]:
    """The assignments that have no pair of what looks best to the player alone, of several such of the first."""
    own = next(_by_own_view(deal, player))
    return (one for one in permutations(range(deal.size)) if all(a != b for a, b in zip(one, own, strict=True)))


def _by_own_view(deal: Deal, player: int) -> Iterator[Assignment]:
    beliefs = combine_beliefs(deal.size, own_values(deal.visible_table(player)), {})
    made: list[Assignment] = []
    while (best := best_except(beliefs, made)) not in made:
        made.append(best)
        yield best


class Asker:
    """Asks for one score after the other, of the assignment that looks best before others and what promises most, and
    then proposes.

    The strong expert for a shy partner, which works out both scales. It asks for as many as there are papers at least,
    if it has the turns. After a rejection it asks for as much as a shy partner wants, and leans towards what that has
    told. When it is asked for a score it tells it.
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
        liked = combine_beliefs(self._deal.size, {}, self._told) - UNKNOWN
        leaning = beliefs + LEANING * len(self._refused) * liked
        self._refused.append(best_except(leaning, self._refused))
        self._num_to_ask = NUM_AGAIN
        return Propose(self._refused[-1])

    def _next_question(self, beliefs: Beliefs) -> Cell | None:
        """The most promising one; none when it is time to propose."""
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
        """Takes the number in an answer as that of the cell which it asked for. Returns its own answer, if asked."""
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
"""By name, to compare with: four who ask and do not listen, the expert when it takes its time, and the strong one. A
player comes from the deal, the seat and the messages of a game."""
