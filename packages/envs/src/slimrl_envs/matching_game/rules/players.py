"""Scripted players for both sides: the strong expert, and baselines that ignore answers."""

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations, repeat

from slimrl_envs.matching_game.rules.beliefs import (
    Beliefs,
    best_except,
    combine_beliefs,
    gains,
    looks_best,
    own_values,
    worth_of,
)
from slimrl_envs.matching_game.rules.deal import UNKNOWN, Assignment, Cell, Deal, optimum
from slimrl_envs.matching_game.rules.game import Accept, Act, Propose, Reject, Say
from slimrl_envs.matching_game.rules.parser import Parser, ask_for_score, tell_score
from slimrl_envs.matching_game.rules.planner import Planner
from slimrl_envs.matching_game.rules.protocol import Player
from slimrl_envs.matching_game.rules.shy_partner import NUM_AGAIN

RESERVED = NUM_AGAIN + 2  # turns that an asker keeps: to propose, to ask again, to propose again
MIN_GAIN = 0.5  # the least expected gain for which `Asker` asks
LEANING = 0.5  # the weight that each rejection adds to the partner's scores


class Stubborn(Player):
    """A player that proposes one assignment after the other and ignores answers. It accepts every proposal.

    It asks `num_first` questions before the first proposal and `num_again` questions between two proposals, about the
    cells in the order of the table.
    """

    def __init__(
        self, deal: Deal, proposals: Iterable[Assignment], num_first: int = 0, num_again: int = NUM_AGAIN
    ) -> None:
        super().__init__(deal)
        self._proposals, self._cells = iter(proposals), iter(deal.cells)
        self._num_to_ask, self._num_again = num_first, num_again

    def _act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Propose):
            return Accept()
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
    """Yield assignments in the order of their worth to the player alone, the best first, as long as `best_except` finds
    new ones."""
    beliefs = combine_beliefs(deal.size, own_values(deal.seen(player)), {})
    made: list[Assignment] = []
    while (best := best_except(beliefs, made)) not in made:
        made.append(best)
        yield best


def by_the_rule(deal: Deal, player: int) -> Iterator[Assignment]:
    """Yield the assignments of `by_own_view`. If the first one looks better than all others, it is yielded last,
    because the rule of the deal excludes it as the optimum."""
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


class Asker(Player):
    """The strong expert for a shy partner. It estimates both scales, asks for scores one by one, and then proposes.

    It asks first about pairs of the assignment that looks best, then by expected gain. It asks at least one question
    for each paper if it has enough turns. After a rejection it asks as many questions as a shy partner wants, and gives
    the partner's scores more weight. It answers a question about a score.
    """

    def __init__(self, deal: Deal, player: int, max_turns: int) -> None:
        super().__init__(deal)
        self._seen, self._parser = deal.seen(player), Parser(deal)
        self._own = own_values(self._seen)
        self._told: dict[Cell, int] = {}
        self._asked: set[Cell] = set()
        self._open: Cell | None = None
        self._refused: list[Assignment] = []
        self._num_to_ask = 0
        self._turns_left = (max_turns + 1 - player) // 2
        self._reserved = RESERVED if self._turns_left >= RESERVED + deal.size else 1

    def _act(self, heard: Say | Propose | None) -> Act:
        act = self._choose(heard)
        self._turns_left -= isinstance(act, Say | Propose)
        return act

    def _choose(self, heard: Say | Propose | None) -> Act:
        answer = self._listen(heard.text) if isinstance(heard, Say) else ""
        beliefs = combine_beliefs(self._deal.size, self._own, self._told)
        if isinstance(heard, Propose):
            return Accept() if looks_best(beliefs, heard.assignment) or not self._turns_left else Reject()
        cell = self._next_question(beliefs)
        if cell:
            self._asked.add(cell)
            self._open = cell
            return Say(f"{answer}{ask_for_score(self._deal, cell)}")
        # A rejection means that the plan is worth less to the partner. So each one raises the weight of the partner's
        # scores.
        liked = combine_beliefs(self._deal.size, {}, self._told) - UNKNOWN
        leaning = beliefs + LEANING * len(self._refused) * liked
        self._refused.append(best_except(leaning, self._refused))
        self._num_to_ask = NUM_AGAIN
        return Propose(self._refused[-1])

    def _next_question(self, beliefs: Beliefs) -> Cell | None:
        """Return the most useful pair to ask about; None when it is time to propose."""
        if self._turns_left == 1 or (not self._num_to_ask and (self._refused or self._turns_left <= self._reserved)):
            return None
        cells = [cell for cell in self._deal.cells if cell not in self._asked]
        gained = gains(beliefs, [cell for cell in cells if cell not in self._own])
        plan = optimum(beliefs)
        best = max(gained, key=lambda cell: (plan[cell[1]] == cell[0], gained[cell]), default=None)
        # A shy partner wants to be asked again after a rejection, if only about a pair that both know.
        must_ask = self._num_to_ask > 0
        self._num_to_ask -= must_ask
        if must_ask or len(self._asked) < self._deal.size:
            return best or next(iter(cells), None)
        is_worth_it = best is not None and gained[best] >= MIN_GAIN
        return best if is_worth_it or self._reserved == 1 else None  # no turn to keep: asking costs nothing

    def _listen(self, text: str) -> str:
        """Store the last number in the text as the answer to this player's question. Return the answer to the first
        question in the text, or an empty text."""
        numbers, cell = self._parser.numbers(text), self._open
        if cell and numbers:
            self._told[cell] = numbers[-1]
        self._open = None
        cells = self._parser.topics(text).cells
        return f"{tell_score(self._deal, cells[0], self._seen)} " if cells else ""


SCRIPTS: dict[str, Callable[[Deal, int, int], Player]] = {
    "constant": lambda deal, player, _: Stubborn(deal, permutations(range(deal.size))),
    "own-view": lambda deal, player, _: Stubborn(deal, by_own_view(deal, player)),
    "contrary": lambda deal, player, _: Stubborn(deal, without_own_pairs(deal, player), deal.size),
    "deaf": lambda deal, player, _: Stubborn(deal, by_the_rule(deal, player), deal.size),
    "planner": lambda deal, player, max_turns: Planner(deal, player, max_turns, deal.size + 1),
    "solver": Asker,
}
"""The players by name, made from the deal, the seat and the number of messages: four that do not listen, the planner,
which asks about all of its plan and once more, and the strong expert. By the rule of the deal what looks best alone is
often poor: `contrary` avoids all of its pairs, `deaf` proposes it only where it may be the optimum."""
