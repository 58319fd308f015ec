"""A filter of the groups that SLIME trains on. To use it, set `--dynamic-sampling-filter-path
slimrl.integrations.slime.filter.no_failed_game`. See docs/slime.md."""

from collections.abc import Sequence
from typing import Any


def no_failed_game(args: Any, samples: Sequence[Any], **kwargs: Any) -> bool:
    """Return True if no game of the group failed for a reason outside the policy. In this case SLIME keeps the group.

    Otherwise SLIME drops the group and plays another one. A failed sample is not in the loss (`remove_sample`). But its
    reward of 0 would lower the mean of the group, so the advantages of the other samples would be too high.
    """
    return not any(sample.remove_sample for sample in samples)
