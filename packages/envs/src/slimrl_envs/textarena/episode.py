"""A match is one game with its players. An episode is the match from the side of one player.

`Match.reward` defines the rewards. A player loses after too many invalid moves, or after a move that breaks the game.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping

from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Turn
from slimrl_envs.textarena.game import PROMPT, Game, Seen, as_text
from slimrl_envs.textarena.players import Bot
from slimrl_envs.turn_taking import TurnTaking

MAX_INVALID_MOVES = 10  # of a player, who loses with one more; most games allow only one invalid move in a row
MAX_BOT_MOVES = 500  # between two replies of the policy
MAX_SPEECH_CHARS = 1_000  # of each text from another player that the policy reads


class Match:
    """One game with its players. The `bots` play some sides, and the policy plays all other sides."""

    def __init__(self, game: Game, bots: Mapping[int, Bot]) -> None:
        self.game, self.turns, self._bots = game, TurnTaking(), bots
        self._num_turns, self._num_invalid = Counter[int](), Counter[int]()  # by player
        self.last_read: list[Seen] = []  # the texts that the player to move read last, for scripts
        self.forfeit: int | None = None  # the player whose invalid move closed the game

    @property
    def is_over(self) -> bool:
        return self.game.is_over or self.forfeit is not None

    def play(self, reply: str) -> None:
        """Play the policy's `reply` for the player whose turn it is. Then play the bots' moves until it is the policy's
        turn."""
        player = self.game.player
        self._num_turns[player] += 1
        if not self.game.play(reply):
            self._num_invalid[player] += 1
            if self.game.is_over or self._num_invalid[player] > MAX_INVALID_MOVES:
                self.forfeit = player
        self.let_bots_play()
        self.turns.notify()

    def let_bots_play(self) -> None:
        """Play the bots' moves until it is the policy's turn. Raise RolloutError if a bot fails, because the result
        would not depend on the policy."""
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
        """Return the reward of a player at the end of the game, from 0 to 1.

        In a game for one player this is the game's own reward, clipped to this range. Games for several players pay
        from -1 to 1, so a loss becomes 0, a draw 0.5 and a win 1. If an invalid move ended the game, the player of this
        move gets 0, and each other player gets 0.5. This is less than a win, so that no player learns to provoke
        errors.
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
        """Return the texts that the player to move has not read. Texts of other players are cut to
        `MAX_SPEECH_CHARS`."""
        self.last_read = [
            Seen(one.sender, one.text[:MAX_SPEECH_CHARS], one.kind) if one.sender >= 0 else one
            for one in self.game.read()
        ]
        return self.last_read


class MatchEpisode:
    """An episode of a match from the side of one player."""

    def __init__(self, make_match: Callable[[], Match], player: int, system: str) -> None:
        """Make the episode of `player`. `make_match` is called at the start of the episode. If the match has several
        episodes, `make_match` must return the same match to all of them. `system` precedes the rules."""
        self._make_match, self._player, self._system = make_match, player, system
        self._match: Match | None = None

    async def start(self) -> list[Message]:
        """Make the match, wait for this player's first turn, and return the rules and the player's view. Raise
        RolloutError if the game is over before this turn."""
        match = self._match = self._make_match()
        match.let_bots_play()
        await self._wait(match)
        if match.is_over:
            raise RolloutError("partner_left", "the game was over before this player's first turn")
        seen = match.read()
        rules = as_text([one for one in seen if one.kind == PROMPT])
        news = as_text([one for one in seen if one.kind != PROMPT])
        system = "\n\n".join(filter(None, (self._system, rules)))
        opening: list[Message] = [{"role": "system", "content": system}] if system else []
        return [*opening, {"role": "user", "content": news or "Begin."}]

    async def step(self, reply: str) -> Turn:
        """Play the reply without its thoughts, and wait for this player's next turn or for the end of the game."""
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
