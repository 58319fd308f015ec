"""The episode of the matching game from the side of the policy. The module knows neither who the opponent is
(`opponents.py`), nor the source of games (`environment.py`).
"""

from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Turn
from slimrl_envs.matching_game.metrics import Record
from slimrl_envs.matching_game.opponents import Opponent, text_since
from slimrl_envs.matching_game.rules.game import IllegalAct, MatchingGame
from slimrl_envs.matching_game.rules.instructions import LAST_MESSAGE, MUST_ANSWER, rules
from slimrl_envs.matching_game.rules.notebook import Notebook
from slimrl_envs.matching_game.rules.protocol import play_text, proposal_lines

GO_ON = "It is still your turn: write [message] or [propose]."


class MatchingEpisode:
    """An episode of one game, from the side of the policy."""

    def __init__(self, game: MatchingGame, player: int, other: Opponent, last_turn_rule: bool, notes: bool) -> None:
        """Makes the episode. With `last_turn_rule` the player reads at its last message that it must
        propose. With `notes` it reads its numbers."""
        self._game, self._player, self._other = game, player, other
        self._last_turn_rule = last_turn_rule
        self._notebook = Notebook(game, player) if notes else None
        self._record = Record(game, player)
        self._num_heard = 0

    async def start(self) -> list[Message]:
        """The rules, and the player's table with the partner's words if it started."""
        await self._other.answer()
        if self._game.is_over:
            raise RolloutError("partner_left", "the game was over before this player's first turn")
        deal = self._game.deal
        read = [deal.table_text(self._player), *self._news()]
        return [
            {"role": "system", "content": rules(deal, self._game.max_turns)},
            {"role": "user", "content": "\n\n".join(read)},
        ]

    async def step(self, reply: str) -> Turn:
        visible, error = without_thoughts(reply), ""
        self._record.count_attempt(visible)
        try:
            play_text(self._game, self._player, visible)
        except IllegalAct as illegal:
            error = str(illegal)
        await self._other.answer()
        metrics = {**self._record.metrics(), **self._other.metrics()}
        if self._game.is_over:
            ending: Message = {"role": "user", "content": self._ending(error)}
            return Turn(done=True, messages=[ending], reward=self._game.reward, metrics=metrics)
        text = error or "\n\n".join(self._news()) or GO_ON
        return Turn(done=False, messages=[{"role": "user", "content": text}], metrics=metrics)

    async def close(self) -> None:
        self._other.leave()

    def _ending(self, error: str) -> str:
        """The end of the game in words, for people: the policy reads nothing after its last reply."""
        game, deal = self._game, self._game.deal
        last = error or text_since(game, self._num_heard, 1 - self._player)
        if game.agreed is None:
            result = f"The game is over without an agreement: 0 of {deal.best}."
        else:
            result = f"The game is over: you agreed on {deal.value(game.agreed)} of {deal.best}."
        best = (
            ""
            if game.reward == 1
            else f"The best assignment, worth {deal.best}:\n{proposal_lines(deal.best_assignment, deal)}"
        )
        return "\n\n".join(filter(None, (last, result, best)))

    def _news(self) -> list[str]:
        """The other player's acts since the last reply, the notes, and the demand of the rules at this point."""
        heard = text_since(self._game, self._num_heard, 1 - self._player)
        self._num_heard = len(self._game.history)
        news = [heard] if heard else []
        if self._notebook and (known := self._notebook.text()):
            news.append(known)
        if self._game.proposal is not None:
            news.append(MUST_ANSWER)
        elif self._last_turn_rule and self._game.messages_left <= 2:
            news.append(LAST_MESSAGE)
        return news
