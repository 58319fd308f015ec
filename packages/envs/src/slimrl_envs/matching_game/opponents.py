"""The opponent of the policy in the matching game: a partner that plays when it is its turn, or another episode of the
policy itself. The module knows nothing of chats or rewards.
"""

from slimrl.environments.turn_taking import TurnTaking
from slimrl.errors import RolloutError
from slimrl.types import Metrics
from slimrl_envs.matching_game.rules.game import IllegalAct, MatchingGame
from slimrl_envs.matching_game.rules.protocol import Player, format_act, play_text, truncate_message


class Opponent:
    """The other side of a game, which plays for `player`."""

    def __init__(self, game: MatchingGame, player: int) -> None:
        self._game, self._player = game, player
        self._num_heard = 0

    async def answer(self) -> None:
        """Return when it is the policy's turn, or the game is over. Raises RolloutError if the opponent fails."""
        # A partner may act twice: after a rejection the turn stays.
        while not self._game.is_over and self._game.turn == self._player:
            heard = text_since(self._game, self._num_heard, 1 - self._player)
            self._num_heard = len(self._game.history)
            await self._act(heard)

    async def _act(self, heard: str) -> None:
        """Play one act, after the other player's acts. These are empty at the beginning, and when this side has just
        rejected a proposal."""
        raise NotImplementedError

    def leave(self) -> None:
        """Note that the policy's episode is over."""

    def metrics(self) -> Metrics:
        """The opponent's own metrics of the game so far."""
        return {}


class ScriptedPartner(Opponent):
    """A partner that is a script, and makes no mistakes."""

    def __init__(self, game: MatchingGame, player: int, script: Player) -> None:
        super().__init__(game, player)
        self._script = script

    async def _act(self, heard: str) -> None:
        try:
            play_text(self._game, self._player, self._script.reply(heard))
        except IllegalAct as error:
            raise RolloutError("partner_illegal", str(error)) from error


class SelfOpponent(Opponent):
    """The policy itself, in another episode of the same game. `role` is the role of this episode."""

    def __init__(self, game: MatchingGame, player: int, turns: TurnTaking, role: str) -> None:
        super().__init__(game, player)
        self._turns, self._role = turns, role

    async def answer(self) -> None:
        """Wait for the other episode's turn. Raises RolloutError if it has left before the end."""
        self._turns.notify()
        await self._turns.wait_until(lambda: self._game.is_over or self._game.turn != self._player)

    def leave(self) -> None:
        self._turns.leave(self._role)


def text_since(game: MatchingGame, num_heard: int, player: int) -> str:
    """Return the text of a player's acts after the first `num_heard` of the game, as the other player reads it."""
    acts = [act for who, act in game.history[num_heard:] if who == player]
    return "\n\n".join(format_act(truncate_message(act), game.deal) for act in acts)
