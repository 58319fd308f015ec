"""The course of a matching game: whose turn it is, the open proposal, the end of the game, and the score.

Acts are played one at a time. An act against the rules raises `IllegalAct`, and its player keeps the turn. The module
does not depend on the text of acts (`protocol.py`) or on the kind of players.
"""

from dataclasses import dataclass
from typing import Protocol

from slimrl_envs.matching_game.rules.deal import Assignment, Deal

MAX_ERRORS = 8
MAX_HEARD_CHARS = 1000  # characters of a message that the other player hears


def usual_turns(size: int) -> int:
    """Return the usual number of messages of a game: 6 for two papers, else 4 for each paper, but at most 20. With more
    messages, a player could try all assignments without asking and earn as much as a player that asks."""
    return min(20, 4 * size) if size > 2 else 6


@dataclass(frozen=True, slots=True)
class Say:
    """An act that sends a message to the other player and passes the turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Propose:
    """An act that proposes an assignment, and passes the turn to the other player, who must accept or reject it."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Accept:
    """An act that accepts the open proposal and ends the game."""


@dataclass(frozen=True, slots=True)
class Reject:
    """An act that rejects the open proposal. The player keeps the turn."""


Act = Say | Propose | Accept | Reject


class Player(Protocol):
    """A scripted player of one side of one game. It uses only its own view of the deal and the acts that it hears."""

    def act(self, heard: Say | Propose | None) -> Act:
        """Return the next act. `heard` is the other player's last act. It is None at the start of the game, and if this
        player has just rejected a proposal and keeps the turn."""


class IllegalAct(Exception):
    """Raised for an act against the rules, or for a text without an act. The message is for the player who acted."""


class MatchingGame:
    """A game in progress. The players are 0 and 1; player 0 starts.

    `max_turns` (default: `usual_turns`) limits the messages and proposals of both players together. If the last of them
    is a proposal, the other player may still answer it. Errors do not count as messages. A player may make `max_errors`
    errors; one more error ends the game.
    """

    def __init__(self, deal: Deal, max_turns: int | None = None, max_errors: int = MAX_ERRORS) -> None:
        self.deal = deal
        self.max_turns = usual_turns(deal.size) if max_turns is None else max_turns
        self.max_errors = max_errors
        self.turn = 0
        """The player whose turn it is."""
        self.proposal: Assignment | None = None
        """The open proposal, or None. The player whose turn it is must answer it."""
        self.agreed: Assignment | None = None
        """The accepted assignment, or None."""
        self.history: list[tuple[int, Act]] = []
        """All legal acts so far, each with its player. If they are replayed, the turn and the open proposal are
        restored."""
        self.num_errors = [0, 0]
        """The number of errors of each player."""

    @property
    def num_messages(self) -> int:
        """The number of messages and proposals of both players, without answers and errors."""
        return sum(isinstance(act, Say | Propose) for _, act in self.history)

    @property
    def messages_left(self) -> int:
        """The number of messages that both players together may still send. At 2 or less, each player has at most one
        message left."""
        return self.max_turns - self.num_messages

    @property
    def is_over(self) -> bool:
        """True if there is an agreement, a player made too many errors, or no message is left and no proposal is
        open."""
        is_lost = max(self.num_errors) > self.max_errors
        return self.agreed is not None or is_lost or (self.messages_left == 0 and self.proposal is None)

    @property
    def reward(self) -> float:
        """The score of the agreement, in 0..1, which both players get; 0 without an agreement."""
        return self.deal.score(self.agreed) if self.agreed is not None else 0.0

    def heard(self) -> Say | Propose | None:
        """Return the last act, as the player whose turn it is hears it; None if this player has rejected a proposal."""
        act = truncate_message(self.history[-1][1]) if self.history else None
        return act if isinstance(act, Say | Propose) else None

    def play(self, player: int, act: Act) -> None:
        """Play an act of the player whose turn it is. An illegal act counts as an error and raises IllegalAct."""
        problem = self._problem(act)
        if problem:
            self.num_errors[player] += 1
            raise IllegalAct(problem)
        self.history.append((player, act))
        match act:
            case Say():
                self.turn = 1 - player
            case Propose(assignment):
                self.proposal = assignment
                self.turn = 1 - player
            case Accept():
                self.agreed, self.proposal = self.proposal, None
            case Reject():
                self.proposal = None

    def _problem(self, act: Act) -> str:
        """Return the reason why the act is against the rules; an empty text if it is legal."""
        match act:
            case Accept() | Reject() if self.proposal is None:
                verb = "accept" if isinstance(act, Accept) else "reject"
                return f"There is no proposal to {verb}. Write [message] or [propose] first."
            case Say() | Propose() if self.proposal is not None:
                return "Your partner's proposal waits for an answer: write [accept] or [reject] first."
            case Say(text) if not text.strip():
                return "Your message is empty. Write your text after [message]."
            case Propose(assignment) if sorted(assignment) != list(range(self.deal.size)):
                return f"A proposal gives each of the {self.deal.size} papers a reviewer of its own."
        return ""


def truncate_message(act: Act) -> Act:
    """Return the act as the other player hears it: a message is cut to `MAX_HEARD_CHARS` characters."""
    if isinstance(act, Say) and len(act.text) > MAX_HEARD_CHARS:
        return Say(f"{act.text[:MAX_HEARD_CHARS]} (...)")
    return act
