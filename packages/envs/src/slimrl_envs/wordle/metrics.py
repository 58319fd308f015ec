"""The metrics of an episode of Wordle, and the way in which it was lost."""

from collections.abc import Mapping

from slimrl_envs.wordle.rules import GREEN, Game, fits


def metrics_of(game: Game) -> dict[str, float]:
    """The metrics of the player's own tries so far.

    `consistent` is the share of guesses that could have been the answer, given all feedback before them. It is left out
    where no guess followed feedback.
    """
    answered, own = game.tries_with_feedback, [one for one in game.own_tries if one.feedback]
    metrics = {
        "won": float(game.is_won),
        "guesses": float(len(game.tries)),
        "valid": len(own) / len(game.own_tries),
        "best_greens": float(max((one.feedback.count(GREEN) for one in own), default=0)),
        "repeated": float(sum(one.is_repeated for one in game.own_tries)),
    }
    if answered[1:]:
        consistent = sum(fits(one.word, answered[:place]) for place, one in enumerate(answered) if place)
        metrics["consistent"] = consistent / len(answered[1:])
    return metrics


def kind_of_failure(metrics: Mapping[str, float]) -> str | None:
    """The way in which a game was lost, from its metrics: empty if it ran out of turns, None if it was won."""
    if metrics["won"]:
        return None
    if not metrics["valid"]:
        return "no guess that could be played" if metrics["tagged"] else "no guess in tags"
    if metrics["unfinished"]:
        return ""
    if metrics["valid"] < 0.5:
        return "lost, most guesses could not be played"
    return f"lost, most guesses {'against' if metrics.get('consistent', 1.0) < 0.5 else 'by'} the marks"
