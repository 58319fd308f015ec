"""Players of reference for either seat: what proposals at random, by one's own view, and after talking are worth.

A player is asked for its next text by `reply(heard)`: `heard` is what the other player has done since, in the
protocol's text; empty at the beginning, and when it has just rejected a proposal itself. A player knows what it sees
and hears, and nothing else of the deal; only `OwnViewTalker` is told its scale, to be the mark that it stands for.
"""

import random
from itertools import product
from typing import Protocol

from slimrl.games.matching.deal import UNKNOWN, Assignment, Deal, optimum
from slimrl.games.matching.game import MAX_TURNS, Accept, Act, IllegalAct, MatchingGame, Propose, Reject, Say
from slimrl.games.matching.protocol import parsed, play_text, written
from slimrl.games.matching.reading import Cell, Reader
from slimrl.games.matching.sayings import question, told, told_scores
from slimrl.games.matching.views import Weights, best_except, gains, joint_view, own_values, worth_of

NEARLY = 0.98  # of the best that a talker sees: what it accepts, for the two round differently
RESERVED = 3  # turns that an asker keeps: to propose, to ask once more, to propose again
MIN_GAIN = 0.5  # in expected value: what a question must promise
LEANING = 0.5  # after each rejection, what the partner has told weighs so much more


class Player(Protocol):
    """Plays one side of one game."""

    def reply(self, heard: str) -> str:
        """Its next act, in the protocol's text."""


def play_out(game: MatchingGame, players: tuple[Player, Player]) -> float:
    """Plays a game to its end and returns the reward. After an error the same player is asked again."""
    num_heard = [0, 0]
    while not game.is_over:
        player = game.turn
        news = [act for who, act in game.history[num_heard[player] :] if who != player]
        num_heard[player] = len(game.history)
        text = players[player].reply("\n\n".join(written(act, game.deal) for act in news))
        try:
            play_text(game, player, text)
        except IllegalAct:
            continue  # counted by the game, which ends if that goes on
    return game.reward


def heard_act(heard: str, deal: Deal) -> Say | Propose | None:
    """What was heard last: a message or a proposal, or nothing yet. Text that is no act counts as a message."""
    text = heard.strip().removeprefix(written(Reject(), deal)).strip()
    if not text:
        return None
    try:
        act = parsed(text, deal)
    except IllegalAct:
        return Say(text)
    return act if isinstance(act, Propose) else Say(act.text if isinstance(act, Say) else text)


class Agreeable:
    """Accepts every proposal and says nothing of interest: it lets others be measured."""

    def __init__(self, deal: Deal) -> None:
        self._deal = deal

    def reply(self, heard: str) -> str:
        agrees = isinstance(heard_act(heard, self._deal), Propose)
        return written(Accept() if agrees else Say("What do you propose?"), self._deal)


class RandomTalker:
    """Proposes an assignment at random, another one each turn; accepts whatever is proposed."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        self._deal, self._rng = deal, rng

    def reply(self, heard: str) -> str:
        if isinstance(heard_act(heard, self._deal), Propose):
            return written(Accept(), self._deal)
        return written(Propose(tuple(self._rng.sample(range(self._deal.size), self._deal.size))), self._deal)


class OwnViewTalker:
    """Proposes what looks best to it alone, again and again; accepts whatever is proposed."""

    def __init__(self, deal: Deal, player: int) -> None:
        self._deal, self._player = deal, player

    def reply(self, heard: str) -> str:
        if isinstance(heard_act(heard, self._deal), Propose):
            return written(Accept(), self._deal)
        return written(Propose(self._deal.own_best(self._player)), self._deal)


class Talker:
    """Tells everything that it sees, then proposes the optimum of what both see; accepts what is as good, and turns
    down one proposal at most: where few cells are known, two may well read the numbers differently.

    Nobody tells scales: it works them out from the numbers (`views.likely_scale`), first of all from the cells that
    both know.
    """

    def __init__(self, deal: Deal, player: int) -> None:
        self._deal, self._seen = deal, deal.seen(player)
        self._reader = Reader(deal)
        self._own = own_values(self._seen)
        self._told: dict[Cell, int] = {}
        self._has_told = self._has_rejected = False

    def reply(self, heard: str) -> str:
        return written(self._act(heard_act(heard, self._deal)), self._deal)

    def _act(self, heard: Say | Propose | None) -> Act:
        if isinstance(heard, Say):
            self._told |= self._reader.scores(heard.text)
        view = joint_view(self._deal.size, self._own, self._told)
        best = optimum(view)
        if isinstance(heard, Propose):
            if self._has_rejected or worth_of(view, heard.assignment) >= NEARLY * worth_of(view, best):
                return Accept()
            self._has_rejected = True
            return Reject()
        if self._has_told or not self._own:
            return Propose(best)
        self._has_told = True
        return Say(told_scores(self._deal, self._seen))


class Asker:
    """Asks for one score after the other, always the one that promises most, and then proposes.

    The expert for a shy partner. It asks for as many as there are papers at least, if it has the turns. After a
    rejection it asks once more, and leans towards what the partner has told. When it is asked for a score it tells it.
    """

    def __init__(self, deal: Deal, player: int, max_turns: int = MAX_TURNS) -> None:
        self._deal, self._seen = deal, deal.seen(player)
        self._reader = Reader(deal)
        self._own = own_values(self._seen)
        self._told: dict[Cell, int] = {}
        self._asked: set[Cell] = set()
        self._open: Cell | None = None
        self._refused: list[Assignment] = []
        self._has_just_proposed = False
        self._turns_left = (max_turns + 1 - player) // 2

    def reply(self, heard: str) -> str:
        act = self._act(heard_act(heard, self._deal))
        self._turns_left -= isinstance(act, Say | Propose)
        return written(act, self._deal)

    def _act(self, heard: Say | Propose | None) -> Act:
        answer = self._listen(heard.text) if isinstance(heard, Say) else ""
        view = joint_view(self._deal.size, self._own, self._told)
        if isinstance(heard, Propose):
            good = worth_of(view, heard.assignment) >= NEARLY * worth_of(view, optimum(view))
            return Accept() if good or not self._turns_left else Reject()
        cell = self._next_question(view)
        if cell:
            self._asked.add(cell)
            self._open = cell
            return Say(f"{answer}{question(self._deal, cell)}")
        liked = joint_view(self._deal.size, {}, self._told) - UNKNOWN
        leaning = view + LEANING * len(self._refused) * liked
        self._refused.append(best_except(leaning, self._refused))
        self._has_just_proposed = True
        return Propose(self._refused[-1])

    def _next_question(self, view: Weights) -> Cell | None:
        """The most promising one; none when it is time to propose."""
        rejected, self._has_just_proposed = self._has_just_proposed, False
        if self._turns_left == 1 or (not rejected and (self._refused or self._turns_left <= RESERVED)):
            return None
        size = range(self._deal.size)
        cells = [cell for cell in product(size, size) if cell not in self._asked]
        gained = gains(view, [cell for cell in cells if cell not in self._own])
        best = max(gained, key=gained.__getitem__, default=None)
        if rejected:  # a shy partner wants to be asked again, if only about a pair that both know
            return best or next(iter(cells), None)
        is_worth_it = best is not None and (gained[best] >= MIN_GAIN or len(self._asked) < self._deal.size)
        return best if is_worth_it else None

    def _listen(self, text: str) -> str:
        """Takes the number in an answer as that of the cell which it asked for. Returns its own answer, if asked."""
        numbers, cell = self._reader.numbers(text), self._open
        if cell and numbers:
            self._told[cell] = numbers[-1]
        self._open = None
        cells = self._reader.asked(text).cells
        return f"{told(self._deal, cells[0], self._seen)} " if cells else ""
