"""Early signs that a policy's text degrades, which its reward does not show for long: pure functions of what it wrote.

Its entropy and the length of its replies are measured elsewhere (`docs/metrics.md`).
"""

from collections.abc import Hashable, Sequence

NUM_WORDS = 4


def repetition(replies: Sequence[str]) -> float:
    """The share of runs of `NUM_WORDS` words that stand earlier in the same reply, over all replies; 0 if none is that
    long. Text that goes in circles has more than half.

    >>> repetition(["the cat sat down", "and on and on and on and on"])
    0.5
    """
    num = num_distinct = 0
    for reply in replies:
        words = reply.split()
        runs = [tuple(words[start : start + NUM_WORDS]) for start in range(len(words) - NUM_WORDS + 1)]
        num += len(runs)
        num_distinct += len(set(runs))
    return 1.0 - num_distinct / num if num else 0.0


def repeats(events: Sequence[Hashable]) -> int:
    """How many are equal to an earlier one.

    >>> repeats(["a", "b", "a", "a"])
    2
    """
    return len(events) - len(set(events))
