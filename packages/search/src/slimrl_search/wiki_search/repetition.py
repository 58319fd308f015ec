"""Measures of repetition. It is an early sign that a policy's text degrades, long before the reward shows it.

They are pure functions of the policy's text. Its entropy and the length of its replies are measured elsewhere
(`docs/metrics.md`).
"""

from collections.abc import Hashable, Sequence

NUM_WORDS = 4


def repetition(replies: Sequence[str]) -> float:
    """Return the share of n-grams of `NUM_WORDS` words that occur earlier in the same reply, over all replies. This is
    1 - distinct-n (Li et al. 2016), with the n-grams of each reply counted separately. It is 0 if no reply has that
    many words; text that repeats itself in circles has more than 0.5.

    >>> repetition(["the cat sat down", "and on and on and on and on"])
    0.5
    """
    num = num_distinct = 0
    for reply in replies:
        words = reply.split()
        ngrams = [tuple(words[start : start + NUM_WORDS]) for start in range(len(words) - NUM_WORDS + 1)]
        num += len(ngrams)
        num_distinct += len(set(ngrams))
    return 1.0 - num_distinct / num if num else 0.0


def repeats(events: Sequence[Hashable]) -> int:
    """Return the number of events that equal an earlier one.

    >>> repeats(["a", "b", "a", "a"])
    2
    """
    return len(events) - len(set(events))
