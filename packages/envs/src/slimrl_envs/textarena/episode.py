"""A match, which is one game with its players, and an episode of it: the match from the side of one player.

How rewards are made is in `Match.reward`. A player who errs too often, or whose move breaks the game, has lost it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slimrl.environments.turn_taking import TurnTaking
from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Turn
from slimrl_envs.textarena.game import PROMPT, Game, Move, Seen, as_text
from slimrl_envs.textarena.rewards import raw_reward

Bot = Callable[[Game, list[Seen]], str | None]

MAX_BOT_MOVES = 500  # between two replies of the policy
MAX_SPEECH_CHARS = 1_000  # of another player's words


@dataclass
class Record:
    """The counts of one player."""

    turns: int = 0
    invalid_moves: int = 0


class Match:
    """One game with its players: a bot in some places, and the policy in the others."""

    def __init__(self, game: Game, bots: Mapping[int, Bot], max_invalid_moves: int) -> None:
        self.game, self.turns = game, TurnTaking()
        self._bots, self._max_invalid_moves = bots, max_invalid_moves
        self._records = [Record() for _ in range(game.num_players)]
        self.last_read: list[Seen] = []
        self.forfeit: int | None = None  # the player whose invalid move closed the game

    @property
    def is_over(self) -> bool:
        return self.game.is_over or self.forfeit is not None

    def play(self, reply: str) -> None:
        """The move of the policy in the place whose turn it is, and then of the bots until the policy's next."""
        player = self.game.player
        record, move = self._records[player], self.game.play(reply)
        record.turns += 1
        record.invalid_moves += move.is_invalid
        if move.is_invalid and (move.is_over or record.invalid_moves > self._max_invalid_moves):
            self.forfeit = player
        self.let_bots_play()
        self.turns.notify()

    def let_bots_play(self) -> None:
        """Play the bots' moves until the policy's turn. Raises RolloutError for a bot's fault, since such a game does
        not measure the policy."""
        for _ in range(MAX_BOT_MOVES):
            if self.is_over or self.game.player not in self._bots:
                return
            reply = self._bots[self.game.player](self.game, self.game.read())
            if reply is None:
                raise RolloutError("opponent_stuck", "the opponent found no valid move")
            move: Move = self.game.play(reply)
            if move.is_invalid:
                raise RolloutError("opponent_invalid", f"the opponent's move {reply!r} was invalid: {move.error}")
        raise RolloutError("opponent_endless", f"the opponents made {MAX_BOT_MOVES} moves without the policy's turn")

    def reward(self, player: int) -> float:
        """The reward of a player, 0 to 1, at the end of the game.

        For one player it is the game's own, cut to this range. For several, whose rewards go from -1 to 1, a loss
        is 0, a draw 0.5 and a win 1. A player whose invalid move closed the game gets 0. The others then get 0.5 at
        most: an error of another is not a win, so nobody learns to provoke one.
        """
        if self.forfeit == player:
            return 0.0
        if self.forfeit is not None:
            return 0.5
        raw = raw_reward(self.game, player)
        if math.isnan(raw):
            raise RolloutError("environment_error", f"the game gave no reward: {self.game.reason()}")
        return min(1.0, max(0.0, raw if self.game.num_players == 1 else (raw + 1) / 2))

    def metrics(self, player: int) -> dict[str, float]:
        """The metrics of a player."""
        record, is_played = self._records[player], self.game.is_over and self.forfeit is None
        raw = raw_reward(self.game, player) if is_played else math.nan
        has_won = raw > 0 if self.game.num_players > 1 else raw >= 1
        found = {
            "won": float(has_won),
            "invalid_moves": float(record.invalid_moves),
            "ended_by_invalid": float(self.forfeit == player),
            "turns": float(record.turns),
        }
        if self.game.num_players > 1:
            found["drawn"] = float(raw == 0)
            found["other_invalid"] = float(self.forfeit not in (None, player))
        return found

    def read(self) -> list[Seen]:
        """The news for the player whose turn it is. It stays in `last_read` for scripts."""
        self.last_read = [
            Seen(one.sender, one.text[:MAX_SPEECH_CHARS], one.kind) if one.sender >= 0 else one
            for one in self.game.read()
        ]
        return self.last_read


class MatchEpisode:
    """An episode of a match from the side of one player."""

    def __init__(self, make_match: Callable[[], Match], player: int) -> None:
        """Makes the episode. The match is made when it starts, and is the same for all its episodes."""
        self._make_match, self._player = make_match, player
        self._match: Match | None = None

    async def start(self) -> list[Message]:
        """The game's rules, and the player's view before its first move."""
        match = self._match = self._make_match()
        match.let_bots_play()
        await self._wait(match)
        if match.is_over:
            raise RolloutError("partner_left", "the game was over before this player's first turn")
        seen = match.read()
        rules = as_text([one for one in seen if one.kind == PROMPT])
        news = as_text([one for one in seen if one.kind != PROMPT])
        opening: Sequence[Message] = [{"role": "system", "content": rules}] if rules else []
        return [*opening, {"role": "user", "content": news or "Begin."}]

    async def step(self, reply: str) -> Turn:
        """Plays the reply without its thoughts."""
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
