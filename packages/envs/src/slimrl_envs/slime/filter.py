"""A filter of the groups that SLIME trains on: `--dynamic-sampling-filter-path
slimrl.integrations.slime.filter.no_failed_game`. See docs/slime.md.
"""

from collections.abc import Sequence
from typing import Any


def no_failed_game(args: Any, samples: Sequence[Any], **kwargs: Any) -> bool:
    """Return True, which keeps a group, if none of its games failed through no fault of the policy.

    SLIME leaves a failed sample out of the loss (`remove_sample`). But its reward of 0 still lowers the mean of the
    group, which would make the advantages of all other samples too high. SLIME plays another group instead.
    """
    return not any(sample.remove_sample for sample in samples)
