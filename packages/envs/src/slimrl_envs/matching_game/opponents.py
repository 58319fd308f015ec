"""The opponent of the policy in the matching game: a partner that is asked when it is its turn, or another episode of
the policy itself, which is waited for. The module knows nothing of chats or rewards.
"""

from typing import Protocol

from slimrl.environments.turn_taking import TurnTaking
from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Metrics
from slimrl_envs.matching_game.rules.game import IllegalAct, MatchingGame
from slimrl_envs.matching_game.rules.players import Player
from slimrl_envs.matching_game.rules.protocol import format_act, play_text, truncate_message


class Partner(Protocol):
    """A partner of one game, which writes text in the game's protocol."""

    max_tries: int
    """The number of texts that it may offer for one act."""

    async def reply(self, heard: str) -> str:
        """The next act, after the other player's acts since; these are empty at the beginning, and when the partner has
        just turned a proposal down."""

    async def mend(self, error: str) -> str:
        """Another text in place of the last one, which was no legal act."""

    def metrics(self) -> Metrics:
        """What is to be told of it."""


class ScriptedPartner:
    """A partner that is a script, and makes no mistakes."""

    max_tries = 1

    def __init__(self, player: Player) -> None:
        self._player = player

    async def reply(self, heard: str) -> str:
        return self._player.reply(heard)

    async def mend(self, error: str) -> str:
        raise RolloutError("partner_illegal", error)

    def metrics(self) -> Metrics:
        return {}


class Opponent(Protocol):
    """The other side of a game, as an episode deals with it."""

    async def answer(self) -> None:
        """Returns when it is the policy's turn, or the game is over."""

    def leave(self) -> None:
        """Tells that the policy's episode has ended."""

    def metrics(self) -> Metrics:
        """What is to be told of it."""


class PartnerOpponent:
    """A partner that plays when it is its turn."""

    def __init__(self, game: MatchingGame, player: int, partner: Partner) -> None:
        self._game, self._player, self._partner = game, player, partner
        self._num_heard = 0

    async def answer(self) -> None:
        """Has the partner play its turns. Raises RolloutError if it does nothing legal, which is not the policy's
        fault."""
        # A partner may act twice: after a rejection the turn stays.
        while not self._game.is_over and self._game.turn == self._player:
            heard = text_since(self._game, self._num_heard, 1 - self._player)
            self._num_heard = len(self._game.history)
            await self._act(heard)

    async def _act(self, heard: str) -> None:
        text = await self._partner.reply(heard)
        for tries in range(1, self._partner.max_tries + 1):
            try:
                play_text(self._game, self._player, without_thoughts(text))
                return
            except IllegalAct as error:
                if tries == self._partner.max_tries or self._game.is_over:
                    detail = f"{error} It wrote {text!r:.200} ({tries} tries)"
                    raise RolloutError("partner_illegal", detail) from error
                text = await self._partner.mend(str(error))

    def leave(self) -> None:
        """Does nothing: the partner waits for nobody."""

    def metrics(self) -> Metrics:
        return self._partner.metrics()


class SelfOpponent:
    """The policy itself, in another episode of the same game."""

    def __init__(self, game: MatchingGame, player: int, turns: TurnTaking, role: str) -> None:
        """Makes the opponent of the episode whose role is `role`."""
        self._game, self._player, self._turns, self._role = game, player, turns, role

    async def answer(self) -> None:
        """Waits for the other episode's turn. Raises RolloutError if that has left before the end."""
        self._turns.notify()
        await self._turns.wait_until(lambda: self._game.is_over or self._game.turn != self._player)

    def leave(self) -> None:
        self._turns.leave(self._role)

    def metrics(self) -> Metrics:
        return {}


def text_since(game: MatchingGame, num_heard: int, player: int) -> str:
    """The text of a player's acts after the first `num_heard` of the game, as the other player reads it."""
    acts = [act for who, act in game.history[num_heard:] if who == player]
    return "\n\n".join(format_act(truncate_message(act), game.deal) for act in acts)
