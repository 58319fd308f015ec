"""Two rewards of our own: the right number, and a little for one that is near."""

import math


def close(given, task):
    """1 for the right number, and less the further away it is; 0 for no number."""
    try:
        distance = abs(float(given) - task.data["answer"])
    except (TypeError, ValueError):
        return 0.0
    return math.exp(-distance / 3) if math.isfinite(distance) else 0.0


def short(completions, **columns):
    """1 for a reply of at most 60 characters, 0 for a longer one. It has the signature of TRL's reward functions."""
    return [float(len(completion) <= 60) for completion in completions]
