"""Compares sequences of token ids. Independent of modules and tokenizers."""

from collections.abc import Sequence


def common_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common prefix of two lists, or of two tuples, of token ids."""
    low, high = 0, min(len(a), len(b))
    # Bisection on slices, which are compared at C speed. The first `low` tokens are known to be equal.
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
