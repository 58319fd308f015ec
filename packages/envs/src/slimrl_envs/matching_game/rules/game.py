"""The course of a matching game: whose turn it is, which proposal stands, when it is over, and its score.

Acts are played one at a time; an act against the rules raises `IllegalAct` for the speaker, who keeps the turn. Knows
nothing of how acts are written (`protocol.py`) or of who plays.
"""

from dataclasses import dataclass

from slimrl_envs.matching_game.rules.deal import Assignment, Deal

MAX_ERRORS = 8


def usual_turns(size: int) -> int:
    """Return the usual number of messages of a game: 20, but four for each paper where there are few, and six for two
    papers. With more, a player that tries all assignments and listens to nobody would earn as much as one that asks."""
    return min(20, 4 * size) if size > 2 else 6


@dataclass(frozen=True, slots=True)
class Say:
    """An act that sends a message to the other player, and passes the turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Propose:
    """An act that proposes an assignment, and passes the turn to the other player, who must accept or reject it."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Accept:
    """An act that agrees to the standing proposal, and closes the game."""


@dataclass(frozen=True, slots=True)
class Reject:
    """An act that turns the standing proposal down. The turn stays."""


Act = Say | Propose | Accept | Reject


class IllegalAct(Exception):
    """The error of an act against the rules, or of a text without an act. Its message is for the speaker."""


class MatchingGame:
    """A game in progress. Players are 0 and 1; player 0 starts.

    `max_turns` (default: `usual_turns`) counts messages and proposals of both players; the last one, if
    it is a proposal, may still be answered. Errors count as no message; a player may make `max_errors`, with one more
    the game is over.
    """

    def __init__(self, deal: Deal, max_turns: int | None = None, max_errors: int = MAX_ERRORS) -> None:
        self.deal = deal
        self.max_turns = usual_turns(deal.size) if max_turns is None else max_turns
        self.max_errors = max_errors
        self.turn = 0
        """The player whose turn it is."""
        self.proposal: Assignment | None = None
        """The proposal that stands: the player whose turn it is must answer it."""
        self.agreed: Assignment | None = None
        """What was agreed on."""
        self.history: list[tuple[int, Act]] = []
        """All legal acts so far, each with its player. Played again, they lead to the same turn and proposal."""
        self.num_errors = [0, 0]
        """How many errors each player has made."""

    @property
    def num_messages(self) -> int:
        """The number of messages of both players: messages and proposals, without answers and errors."""
        return sum(isinstance(act, Say | Propose) for _, act in self.history)

    @property
    def messages_left(self) -> int:
        """How many messages the two may still send. At 2 or fewer, the next one is its player's last."""
        return self.max_turns - self.num_messages

    @property
    def is_over(self) -> bool:
        """Whether there is an agreement, or no message left and no proposal to answer, or too many errors."""
        is_lost = max(self.num_errors) > self.max_errors
        return self.agreed is not None or is_lost or (self.messages_left == 0 and self.proposal is None)

    @property
    def reward(self) -> float:
        """The score of the agreement, in 0..1; without an agreement 0. The same for both players."""
        return self.deal.score(self.agreed) if self.agreed is not None else 0.0

    def play(self, player: int, act: Act) -> None:
        """Play a legal act. Raise IllegalAct, counted as an error, if it is none; ValueError out of turn."""
        self._check_turn(player)
        problem = self._problem(act)
        if problem:
            self.count_error(player)
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

    def count_error(self, player: int) -> None:
        """Count an error of the player whose turn it is, who keeps the turn. Raise ValueError out of turn."""
        self._check_turn(player)
        self.num_errors[player] += 1

    def _check_turn(self, player: int) -> None:
        if self.is_over:
            raise ValueError("the game is over")
        if player != self.turn:
            raise ValueError(f"player {player} acts, but it is the turn of player {self.turn}")

    def _problem(self, act: Act) -> str:
        """Why the act is against the rules; empty if it is not."""
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
