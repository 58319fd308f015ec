"""An episode: one game of the policy, alone or against bots. `Match._reward` defines the rewards."""

import math
from collections.abc import Callable, Mapping

from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Turn
from slimrl_envs.textarena.game import PROMPT, Game, Seen, as_text
from slimrl_envs.textarena.players import Bot

POLICY = 0  # the number of the player
MAX_INVALID_MOVES = 10  # of the policy, which loses with one more; most games allow only one invalid move in a row
MAX_BOT_MOVES = 500  # between two replies of the policy
MAX_SPEECH_CHARS = 1_000  # of each text from another player that the policy reads


class Match:
    """An episode of a game. The policy is the player `POLICY`, and the `bots` are all other players."""

    game: Game  # from `start` on
    last_read: list[Seen]  # the texts that the policy read last, for scripts

    def __init__(self, make_game: Callable[[], Game], bots: Mapping[int, Bot], system: str) -> None:
        """Make the episode. `make_game` is called at the start of the episode. `system` precedes the rules."""
        self._make_game, self._bots, self._system = make_game, bots, system
        self._num_turns = self._num_invalid = 0
        self._has_forfeited = False  # an invalid move of the policy closed the game

    async def start(self) -> list[Message]:
        """Make the game, play until the policy's first turn, and return the rules and the policy's view. Raise
        RolloutError if the game is over before this turn."""
        self.game = self._make_game()
        self._let_bots_play()
        if self.game.is_over:
            raise RolloutError("partner_left", "the game was over before the policy's first turn")
        seen = self._read()
        rules = as_text([one for one in seen if one.kind == PROMPT])
        news = as_text([one for one in seen if one.kind != PROMPT])
        system = "\n\n".join(filter(None, (self._system, rules)))
        opening: list[Message] = [{"role": "system", "content": system}] if system else []
        return [*opening, {"role": "user", "content": news or "Begin."}]

    async def step(self, reply: str) -> Turn:
        """Play the reply without its thoughts, and then the bots' moves until the policy's next turn."""
        game = self.game
        self._num_turns += 1
        if not game.play(without_thoughts(reply)):
            self._num_invalid += 1
            self._has_forfeited = game.is_over or self._num_invalid > MAX_INVALID_MOVES
        if not self._has_forfeited:
            self._let_bots_play()
        metrics = self._metrics()
        if game.is_over or self._has_forfeited:
            ending: Message = {"role": "user", "content": f"The game is over. {game.reason()}".strip()}
            return Turn(done=True, messages=[ending], reward=self._reward(), metrics=metrics)
        news: Message = {"role": "user", "content": as_text(self._read()) or "Go on."}
        return Turn(done=False, messages=[news], metrics=metrics)

    def _let_bots_play(self) -> None:
        """Play the bots' moves until it is the policy's turn. Raise RolloutError if a bot fails, because the result
        would not depend on the policy."""
        for _ in range(MAX_BOT_MOVES):
            if self.game.is_over or self.game.player not in self._bots:
                return
            reply = self._bots[self.game.player](self.game, self.game.read())
            if reply is None:
                raise RolloutError("opponent_stuck", "the opponent found no valid move")
            if not self.game.play(reply):
                raise RolloutError("opponent_invalid", f"the opponent's move {reply!r} failed: {self.game.reason()}")
        raise RolloutError("opponent_endless", f"the opponents made {MAX_BOT_MOVES} moves without the policy's turn")

    def _reward(self) -> float:
        """Return the policy's reward at the end of the game, from 0 to 1.

        In a game for one player this is the game's own reward, clipped to this range. Games for several players pay
        from -1 to 1, so a loss becomes 0, a draw 0.5 and a win 1. If an invalid move ended the game, the reward is 0.
        """
        if self._has_forfeited:
            return 0.0
        raw = self.game.reward(POLICY)
        if math.isnan(raw):
            raise RolloutError("environment_error", f"the game gave no reward: {self.game.reason()}")
        return min(1.0, max(0.0, raw if self.game.num_players == 1 else (raw + 1) / 2))

    def _metrics(self) -> dict[str, float]:
        is_played = self.game.is_over and not self._has_forfeited
        raw = self.game.reward(POLICY) if is_played else math.nan
        found = {
            "won": raw > 0 if self.game.num_players > 1 else raw >= 1,
            "invalid_moves": self._num_invalid,
            "ended_by_invalid": self._has_forfeited,
            "turns": self._num_turns,
        }
        if self.game.num_players > 1:
            found["drawn"] = raw == 0
        return {name: float(value) for name, value in found.items()}

    def _read(self) -> list[Seen]:
        """Return the texts that the policy has not read. Texts of other players are cut to `MAX_SPEECH_CHARS`."""
        self.last_read = [
            Seen(one.sender, one.text[:MAX_SPEECH_CHARS], one.kind) if one.sender >= 0 else one
            for one in self.game.read()
        ]
        return self.last_read
