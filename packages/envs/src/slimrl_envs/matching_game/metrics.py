"""The record of an episode of the matching game, and its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass

from slimrl_envs.matching_game.rules.game import Act, MatchingGame, Propose, Say
from slimrl_envs.matching_game.rules.protocol import split_tag
from slimrl_envs.matching_game.rules.questions import count_questions


@dataclass
class Record:
    """The record of one episode, in which the policy is `player`."""

    game: MatchingGame
    player: int
    num_proposals: int = 0

    def count_attempt(self, text: str) -> None:
        """Counts a reply of the policy, legal or not."""
        self.num_proposals += split_tag(text)[0] == "propose"

    def metrics(self) -> dict[str, float]:
        """The metrics so far. `own_view` is the score that the policy could have had without a word; a proposal is
        valid if it was legal; messages and questions are the policy's own."""
        game, deal = self.game, self.game.deal
        acts: list[Act] = [act for player, act in game.history if player == self.player]
        said = count_questions(act.text for act in acts if isinstance(act, Say))
        return {
            "agreed": float(game.agreed is not None),
            "score": game.reward,
            "optimum": float(game.agreed is not None and deal.value(game.agreed) == deal.best),
            "own_view": deal.score(deal.own_best(self.player)),
            "proposals": float(self.num_proposals),
            "valid_proposals": float(sum(isinstance(act, Propose) for act in acts)),
            "errors": float(game.num_errors[self.player]),
            "messages": float(said.messages),
            "questions": float(said.questions),
            "distinct_questions": float(said.distinct),
        }


def kind_of_failure(metrics: Mapping[str, float], max_errors: int) -> str:
    """The way in which an episode fell short of the best, from its metrics; empty where it ran out of turns."""
    if metrics["errors"] > max_errors:
        return "too many errors"
    if metrics["unfinished"]:
        return ""
    if not metrics["agreed"]:
        if metrics["valid_proposals"]:
            return "proposals turned down"
        return "no valid proposal" if metrics["proposals"] else "never proposed"
    return (
        "agreed on less than its own view" if metrics["score"] < metrics["own_view"] else "agreed on less than the best"
    )
