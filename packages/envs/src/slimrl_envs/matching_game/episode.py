"""An episode of the matching game from the side of the policy, and the policy's opponents. An opponent is a scripted
partner, a language model, or the policy in another episode of the same game. `environment.py` provides the games."""

import asyncio
from itertools import takewhile

from slimrl.errors import RolloutError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Metrics, Turn
from slimrl_envs.matching_game.rules.beliefs import USUAL
from slimrl_envs.matching_game.rules.deal import Cell
from slimrl_envs.matching_game.rules.game import IllegalAct, MatchingGame, Player, Propose, Say, truncate_message
from slimrl_envs.matching_game.rules.language import Parser, count_questions
from slimrl_envs.matching_game.rules.protocol import (
    LAST_MESSAGE,
    MUST_ANSWER,
    format_act,
    play_text,
    proposal_lines,
    rules,
    split_tag,
)

GO_ON = "It is still your turn: write [message] or [propose]."


class Opponent:
    """The policy's opponent in a game. It plays the side `player`."""

    def __init__(self, game: MatchingGame, player: int) -> None:
        self._game, self._player = game, player

    async def answer(self) -> None:
        """Play the opponent's acts until it is the policy's turn or the game is over. Raises RolloutError if the
        opponent fails."""
        # A partner may act twice in a row, because it keeps the turn after a rejection.
        while self._is_at_turn():
            await self._act()

    async def _act(self) -> None:
        raise NotImplementedError

    def _is_at_turn(self) -> bool:
        return not self._game.is_over and self._game.turn == self._player

    def leave(self) -> None:
        """Handle the end of the policy's episode. The base class does nothing."""

    def metrics(self) -> Metrics:
        """Return the opponent's own metrics of the game so far."""
        return {}


class ScriptedPartner(Opponent):
    """A partner that plays by a script."""

    def __init__(self, game: MatchingGame, player: int, script: Player) -> None:
        super().__init__(game, player)
        self._script = script

    async def _act(self) -> None:
        self._game.play(self._player, self._script.act(self._game.heard()))


class Turns:
    """Wakes the two episodes of one game in self-play, which run in one event loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.left = ""  # the role of the episode that has left first

    def notify(self) -> None:
        """Wake all waiting episodes, so that they check the game again."""
        # The waiting episodes hold the old event. Later waits use the new event.
        self.changed.set()
        self.changed = asyncio.Event()


class SelfOpponent(Opponent):
    """The opponent in self-play: the policy in another episode of the same game. `role` is the role of the first
    episode, which plays against this opponent."""

    def __init__(self, game: MatchingGame, player: int, turns: Turns, role: str) -> None:
        super().__init__(game, player)
        self._turns, self._role = turns, role

    async def answer(self) -> None:
        """Wait until the other episode has played its turn or the game is over. Raises RolloutError if the other
        episode has left before the end. The wait is part of a call into the environment, so `episode_timeout_s` must
        be long enough for the other player's reply, including retries."""
        self._turns.notify()
        await super().answer()

    async def _act(self) -> None:
        if left := self._turns.left:
            raise RolloutError("partner_left", f"{left} left the table before the end of the game")
        await self._turns.changed.wait()

    def leave(self) -> None:
        self._turns.left = self._turns.left or self._role
        self._turns.notify()


def heard_text(game: MatchingGame, player: int) -> str:
    """Return the text of the other player's acts since the player's last act, as the player reads it."""
    acts = takewhile(lambda entry: entry[0] != player, reversed(game.history))
    texts = [format_act(truncate_message(act), game.deal) for _, act in acts]
    return "\n\n".join(reversed(texts))


class MatchingEpisode:
    """An episode of one game, from the side of the policy."""

    def __init__(self, game: MatchingGame, player: int, other: Opponent, last_turn_rule: bool, notes: bool) -> None:
        """Make the episode. With `last_turn_rule`, the player reads before its last message that it must propose. With
        `notes`, the player reads the numbers that it knows."""
        self._game, self._player, self._other = game, player, other
        self._last_turn_rule = last_turn_rule
        self._parser = Parser(game.deal) if notes else None
        self._num_proposals = 0

    async def start(self) -> list[Message]:
        """Return the rules and the player's table, and the partner's acts if the partner starts. Raise RolloutError if
        these acts have already ended the game."""
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
        """Return the metrics so far. `own_view` is the score of the assignment that looks best to the policy before any
        talk. `valid_proposals` counts legal proposals. `messages` and the counts of questions cover only the policy's
        messages."""
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
        """Return a description of the end of the game. Only people read it, because the episode is over for the
        policy."""
        game, deal = self._game, self._game.deal
        last = error or heard_text(game, self._player)
        if game.agreed is None:
            result = f"The game is over without an agreement: 0 of {deal.best}."
        else:
            result = f"The game is over: you agreed on {deal.value(game.agreed)} of {deal.best}."
        best = f"The best assignment, worth {deal.best}:\n{proposal_lines(deal.best_assignment, deal)}"
        return "\n\n".join(filter(None, (last, result, best if game.reward < 1 else "")))

    def _news(self) -> list[str]:
        """Return the texts for the policy's next turn: the other player's acts since the last reply, the notes, and a
        reminder if the policy must answer a proposal or propose now."""
        heard = heard_text(self._game, self._player)
        must = ""
        if self._game.proposal is not None:
            must = MUST_ANSWER
        elif self._last_turn_rule and self._game.messages_left <= 2:
            must = LAST_MESSAGE
        return [*filter(None, (heard, notes(self._game, self._player, self._parser) if self._parser else "", must))]


def notes(game: MatchingGame, player: int, parser: Parser) -> str:
    """Return the numbers that a player knows from its table and from answers. They are one line, the largest first, as
    in `You know: Ava Electra 293, Ava BLEU 281. Low: Daniel BLEU 55. No score: Sofia GloVe.`

    `Low` lists the numbers below `USUAL`. `No score` lists the pairs for which the player asked in vain. A sentence of
    an answer has a score if it names one pair and one number. Scores from answers never replace numbers of the table.
    """
    numbers = game.deal.seen(player)
    asked: dict[Cell, None] = {}
    for who, act in game.history:
        heard = act if who == player else truncate_message(act)
        if isinstance(heard, Say) and who == player:
            asked |= dict.fromkeys(parser.topics(heard.text).cells)
        elif isinstance(heard, Say):
            # The right side of `|` has priority, so the first number of a pair stays.
            numbers = parser.scores(heard.text) | numbers
    names = {cell: " ".join(game.deal.names(cell)) for cell in (*numbers, *asked)}
    known = sorted(numbers, key=lambda cell: (-numbers[cell], cell))
    lists = {
        "You know": [f"{names[cell]} {numbers[cell]}" for cell in known if numbers[cell] >= USUAL],
        "Low": [f"{names[cell]} {numbers[cell]}" for cell in known if numbers[cell] < USUAL],
        "No score": [names[cell] for cell in asked if cell not in numbers],
    }
    return " ".join(f"{title}: {', '.join(pairs)}." for title, pairs in lists.items() if pairs)
