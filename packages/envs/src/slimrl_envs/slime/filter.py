"""A filter of the groups that SLIME trains on: `--dynamic-sampling-filter-path
slimrl.integrations.slime.filter.no_failed_game`. See docs/slime.md.
"""

from collections.abc import Sequence
from typing import Any


def no_failed_game(args: Any, samples: Sequence[Any], **kwargs: Any) -> bool:
    """Return True to keep a group: none of its games failed through no fault of the policy.

    SLIME leaves a failed sample out of the loss (`remove_sample`), but its reward of 0 still counts in the mean that
    the others are compared with, and would praise them all for nothing. SLIME plays another group instead.
    """
    return not any(sample.remove_sample for sample in samples)
