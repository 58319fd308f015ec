"""The episode of the matching game from the side of the policy. The module knows neither who the opponent is
(`opponents.py`), nor the source of games (`environment.py`).
"""

from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Metrics, Turn
from slimrl_envs.matching_game.opponents import Opponent, text_since
from slimrl_envs.matching_game.rules.beliefs import USUAL
from slimrl_envs.matching_game.rules.deal import Cell
from slimrl_envs.matching_game.rules.game import IllegalAct, MatchingGame, Propose, Say
from slimrl_envs.matching_game.rules.parser import Parser
from slimrl_envs.matching_game.rules.protocol import (
    LAST_MESSAGE,
    MUST_ANSWER,
    play_text,
    proposal_lines,
    rules,
    split_tag,
    truncate_message,
)
from slimrl_envs.matching_game.rules.questions import count_questions

GO_ON = "It is still your turn: write [message] or [propose]."


class MatchingEpisode:
    """An episode of one game, from the side of the policy."""

    def __init__(self, game: MatchingGame, player: int, other: Opponent, last_turn_rule: bool, notes: bool) -> None:
        """Make the episode. With `last_turn_rule` the player reads at its last message that it must
        propose. With `notes` it reads its numbers."""
        self._game, self._player, self._other = game, player, other
        self._last_turn_rule = last_turn_rule
        self._parser = Parser(game.deal) if notes else None
        self._num_heard = self._num_proposals = 0

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
        self._num_proposals += split_tag(visible)[0] == "propose"
        try:
            play_text(self._game, self._player, visible)
        except IllegalAct as illegal:
            error = str(illegal)
        await self._other.answer()
        metrics, game = {**self._metrics(), **self._other.metrics()}, self._game
        text = self._ending(error) if game.is_over else error or "\n\n".join(self._news()) or GO_ON
        return Turn(game.is_over, [{"role": "user", "content": text}], game.reward if game.is_over else 0.0, metrics)

    async def close(self) -> None:
        self._other.leave()

    def _metrics(self) -> Metrics:
        """The metrics so far. `own_view` is the score that the policy could have had without a word; a proposal is
        valid if it was legal; messages and questions are the policy's own."""
        game, deal = self._game, self._game.deal
        acts = [act for player, act in game.history if player == self._player]
        said = count_questions(act.text for act in acts if isinstance(act, Say))
        return {
            "agreed": float(game.agreed is not None),
            "score": game.reward,
            "optimum": float(game.agreed is not None and deal.value(game.agreed) == deal.best),
            "own_view": deal.score(deal.own_best(self._player)),
            "proposals": float(self._num_proposals),
            "valid_proposals": float(sum(isinstance(act, Propose) for act in acts)),
            "errors": float(game.num_errors[self._player]),
            "messages": float(said.messages),
            "questions": float(said.questions),
            "distinct_questions": float(said.distinct),
        }

    def _ending(self, error: str) -> str:
        """The end of the game in words, for people: the policy reads nothing after its last reply."""
        game, deal = self._game, self._game.deal
        last = error or text_since(game, self._num_heard, 1 - self._player)
        if game.agreed is None:
            result = f"The game is over without an agreement: 0 of {deal.best}."
        else:
            result = f"The game is over: you agreed on {deal.value(game.agreed)} of {deal.best}."
        best = f"The best assignment, worth {deal.best}:\n{proposal_lines(deal.best_assignment, deal)}"
        return "\n\n".join(filter(None, (last, result, best if game.reward < 1 else "")))

    def _news(self) -> list[str]:
        """The other player's acts since the last reply, the notes, and the demand of the rules at this point."""
        heard = text_since(self._game, self._num_heard, 1 - self._player)
        self._num_heard = len(self._game.history)
        must = ""
        if self._game.proposal is not None:
            must = MUST_ANSWER
        elif self._last_turn_rule and self._game.messages_left <= 2:
            must = LAST_MESSAGE
        return [*filter(None, (heard, notes(self._game, self._player, self._parser) if self._parser else "", must))]


def notes(game: MatchingGame, player: int, parser: Parser) -> str:
    """Return the numbers in a player's table and in answers in one line, with the largest first, as in
    `You know: Ava Electra 293, Ava BLEU 281. Low: Daniel BLEU 55. No score: Sofia GloVe.`

    A sentence has a score if it names one pair and one number; it never replaces a number of the table. Pairs
    without a score were asked about in vain. A low number is below `USUAL`.
    """
    numbers = game.deal.seen(player)
    asked: dict[Cell, None] = {}
    for who, act in game.history:
        heard = act if who == player else truncate_message(act)
        if isinstance(heard, Say) and who == player:
            asked |= dict.fromkeys(parser.topics(heard.text).cells)
        elif isinstance(heard, Say):
            # The right side of `|` wins: the first number stays, against all later claims.
            numbers = parser.scores(heard.text) | numbers
    names = {cell: " ".join(game.deal.names(cell)) for cell in (*numbers, *asked)}
    known = sorted(numbers, key=lambda cell: (-numbers[cell], cell))
    lists = {
        "You know": [f"{names[cell]} {numbers[cell]}" for cell in known if numbers[cell] >= USUAL],
        "Low": [f"{names[cell]} {numbers[cell]}" for cell in known if numbers[cell] < USUAL],
        "No score": [names[cell] for cell in asked if cell not in numbers],
    }
    return " ".join(f"{title}: {', '.join(pairs)}." for title, pairs in lists.items() if pairs)
