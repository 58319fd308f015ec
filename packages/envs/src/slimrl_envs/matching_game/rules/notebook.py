"""The notebook of a player: the numbers in its table and in answers, in one line, with low ones apart."""

from slimrl_envs.matching_game.rules.beliefs import USUAL
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import MatchingGame, Say
from slimrl_envs.matching_game.rules.parser import Cell, Parser
from slimrl_envs.matching_game.rules.phrases import names_of
from slimrl_envs.matching_game.rules.protocol import truncate_message


class Notebook:
    """The notebook of one player of a game, which is read anew from the game's history each time."""

    def __init__(self, game: MatchingGame, player: int) -> None:
        self._game, self._player, self._parser = game, player, Parser(game.deal)

    def text(self) -> str:
        """The line, with the largest number first, as in
        `You know: Ava Electra 293, Ava BLEU 281. Low: Daniel BLEU 55. No score: Sofia GloVe.`

        A sentence has a score if it names one pair and one number; it never replaces a number of the table. Pairs
        without a score were asked about in vain. A low number is below `USUAL`.
        """
        deal = self._game.deal
        seen = {(r, p): score for r, row in enumerate(deal.visible_table(self._player)) for p, score in enumerate(row)}
        numbers = {cell: score for cell, score in seen.items() if score is not None}
        asked: dict[Cell, None] = {}
        for player, act in self._game.history:
            heard = act if player == self._player else truncate_message(act)
            if isinstance(heard, Say) and player == self._player:
                asked |= dict.fromkeys(self._parser.topics(heard.text).cells)
            elif isinstance(heard, Say):
                # The right side of `|` wins: the first number stays, against all later claims.
                numbers = self._parser.scores(heard.text) | numbers
        known = sorted(numbers, key=lambda cell: (-numbers[cell], cell))
        lists = {
            "You know": [f"{_pair(deal, cell)} {numbers[cell]}" for cell in known if numbers[cell] >= USUAL],
            "Low": [f"{_pair(deal, cell)} {numbers[cell]}" for cell in known if numbers[cell] < USUAL],
            "No score": [_pair(deal, cell) for cell in asked if cell not in numbers],
        }
        return " ".join(f"{title}: {', '.join(pairs)}." for title, pairs in lists.items() if pairs)


def _pair(deal: Deal, cell: Cell) -> str:
    return " ".join(names_of(deal, cell))
