"""A match, which is one game with its players, and an episode of it: the match from the side of one player.

How rewards are made is in `Match.reward`. A player who errs too often, or whose move breaks the game, has lost it.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping

from slimrl.environments.turn_taking import TurnTaking
from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Turn
from slimrl_envs.textarena.game import PROMPT, Game, Seen, as_text
from slimrl_envs.textarena.players import Bot

MAX_BOT_MOVES = 500  # between two replies of the policy
MAX_SPEECH_CHARS = 1_000  # of another player's words


class Match:
    """One game with its players: a bot in some places, and the policy in the others."""

    def __init__(self, game: Game, bots: Mapping[int, Bot], max_invalid_moves: int) -> None:
        self.game, self.turns = game, TurnTaking()
        self._bots, self._max_invalid_moves = bots, max_invalid_moves
        self._num_turns, self._num_invalid = Counter[int](), Counter[int]()  # by player
        self.last_read: list[Seen] = []  # by the player to move, for scripts
        self.forfeit: int | None = None  # the player whose invalid move closed the game

    @property
    def is_over(self) -> bool:
        return self.game.is_over or self.forfeit is not None

    def play(self, reply: str) -> None:
        """Make the move of the policy in the place whose turn it is, and then the bots' until the policy's next."""
        player = self.game.player
        self._num_turns[player] += 1
        if not self.game.play(reply):
            self._num_invalid[player] += 1
            if self.game.is_over or self._num_invalid[player] > self._max_invalid_moves:
                self.forfeit = player
        self.let_bots_play()
        self.turns.notify()

    def let_bots_play(self) -> None:
        """Play the bots' moves until the policy's turn. Raise RolloutError for a bot's fault, since such a game does
        not measure the policy."""
        for _ in range(MAX_BOT_MOVES):
            if self.is_over or self.game.player not in self._bots:
                return
            reply = self._bots[self.game.player](self.game, self.game.read())
            if reply is None:
                raise RolloutError("opponent_stuck", "the opponent found no valid move")
            if not self.game.play(reply):
                raise RolloutError("opponent_invalid", f"the opponent's move {reply!r} failed: {self.game.reason()}")
        raise RolloutError("opponent_endless", f"the opponents made {MAX_BOT_MOVES} moves without the policy's turn")

    def reward(self, player: int) -> float:
        """Return the reward of a player, 0 to 1, at the end of the game.

        For one player it is the game's own, cut to this range. For several, whose rewards go from -1 to 1, a loss
        is 0, a draw 0.5 and a win 1. A player whose invalid move closed the game gets 0. The others then get 0.5 at
        most: an error of another is not a win, so nobody learns to provoke one.
        """
        if self.forfeit is not None:
            return 0.0 if self.forfeit == player else 0.5
        raw = self.game.reward(player)
        if math.isnan(raw):
            raise RolloutError("environment_error", f"the game gave no reward: {self.game.reason()}")
        return min(1.0, max(0.0, raw if self.game.num_players == 1 else (raw + 1) / 2))

    def metrics(self, player: int) -> dict[str, float]:
        """Return the metrics of a player."""
        is_played = self.game.is_over and self.forfeit is None
        raw = self.game.reward(player) if is_played else math.nan
        found = {
            "won": raw > 0 if self.game.num_players > 1 else raw >= 1,
            "invalid_moves": self._num_invalid[player],
            "ended_by_invalid": self.forfeit == player,
            "turns": self._num_turns[player],
        }
        if self.game.num_players > 1:
            found |= {"drawn": raw == 0, "other_invalid": self.forfeit not in (None, player)}
        return {name: float(value) for name, value in found.items()}

    def read(self) -> list[Seen]:
        """Return the news for the player whose turn it is."""
        self.last_read = [
            Seen(one.sender, one.text[:MAX_SPEECH_CHARS], one.kind) if one.sender >= 0 else one
            for one in self.game.read()
        ]
        return self.last_read


class MatchEpisode:
    """An episode of a match from the side of one player."""

    def __init__(self, make_match: Callable[[], Match], player: int) -> None:
        """Make the episode. The match is made when it starts, and is the same for all its episodes."""
        self._make_match, self._player = make_match, player
        self._match: Match | None = None

    async def start(self) -> list[Message]:
        """Return the game's rules, and the player's view before its first move."""
        match = self._match = self._make_match()
        match.let_bots_play()
        await self._wait(match)
        if match.is_over:
            raise RolloutError("partner_left", "the game was over before this player's first turn")
        seen = match.read()
        rules = as_text([one for one in seen if one.kind == PROMPT])
        news = as_text([one for one in seen if one.kind != PROMPT])
        opening: list[Message] = [{"role": "system", "content": rules}] if rules else []
        return [*opening, {"role": "user", "content": news or "Begin."}]

    async def step(self, reply: str) -> Turn:
        """Play the reply without its thoughts."""
        match = self._match
        assert match is not None, "an episode is started before its first step"
        if not match.is_over:
            match.play(without_thoughts(reply))
        await self._wait(match)
        metrics = match.metrics(self._player)
        if match.is_over:
            ending: Message = {"role": "user", "content": f"The game is over. {match.game.reason()}".strip()}
            return Turn(done=True, messages=[ending], reward=match.reward(self._player), metrics=metrics)
        text = as_text(match.read()) or "Go on."
        return Turn(done=False, messages=[{"role": "user", "content": text}], metrics=metrics)

    async def close(self) -> None:
        """Leave the game, so that the other sides stop waiting."""
        if self._match:
            self._match.turns.leave(f"player {self._player}")

    async def _wait(self, match: Match) -> None:
        await match.turns.wait_until(lambda: match.is_over or match.game.player == self._player)
