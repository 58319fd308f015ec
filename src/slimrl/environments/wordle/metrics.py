"""What is told of a game of Wordle: the metrics of an episode, and in what way it was lost."""

from collections.abc import Mapping

from slimrl.environments.wordle.rules import GREEN, Game, fits


def metrics_of(game: Game) -> dict[str, float]:
    """Those so far, of the player's own tries. `consistent` is the share of the guesses after some marks that could
    have been the answer after all of these; without any it is left out."""
    marked, own = game.marked, [one for one in game.own if one.marks]
    metrics = {
        "won": float(game.is_won),
        "guesses": float(len(game.tries)),
        "valid": len(own) / len(game.own),
        "best_greens": float(max((one.marks.count(GREEN) for one in own), default=0)),
        "repeated": float(sum(one.is_repeated for one in game.own)),
    }
    if marked[1:]:
        consistent = sum(fits(one.word, marked[:place]) for place, one in enumerate(marked) if place)
        metrics["consistent"] = consistent / len(marked[1:])
    return metrics


def kind_of_failure(metrics: Mapping[str, float]) -> str | None:
    """In what way a game was lost, from its metrics; empty where its end says it all, None for one that was won."""
    if metrics["won"]:
        return None
    if not metrics["valid"]:
        return "no guess that could be played" if metrics["tagged"] else "no guess in tags"
    if metrics["unfinished"]:
        return ""
    if metrics["valid"] < 0.5:
        return "lost, most guesses could not be played"
    return f"lost, most guesses {'against' if metrics.get('consistent', 1.0) < 0.5 else 'by'} the marks"
