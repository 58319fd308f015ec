"""Finds the policy loss that is named in the settings: a function of slimrl or of the user."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from slimrl.config.loss import OWN, ResolvedLoss
from slimrl.errors import UserError
from slimrl.io.user_code import load_function
from slimrl.trainer.losses import POLICY_LOSSES, TokenBatch


def load_policy_loss(loss: ResolvedLoss) -> Callable[[TokenBatch], tuple[Tensor, Tensor]]:
    """Return the policy loss, with its hyperparameters bound. Raises UserError if a user-defined function does not
    exist, does not accept `policy_args`, or does not return two tensors (N,)."""
    if loss.policy in POLICY_LOSSES:
        return partial(POLICY_LOSSES[loss.policy], **loss.policy_args)
    own = load_function(loss.policy, "policy loss", loss.policy_args, OWN["policy"])

    def checked(tokens: TokenBatch) -> tuple[Tensor, Tensor]:
        found: Any = own(tokens, **loss.policy_args)
        shapes = [one.shape if isinstance(one, Tensor) else one for one in found] if isinstance(found, tuple) else []
        if shapes != [tokens.new_N.shape] * 2:
            raise UserError(
                f"policy loss `{loss.policy}` must return two tensors (N,), the loss of each token and whether a clip "
                f"decided it, not {found!r:.200}."
            )
        return found[0], found[1]

    return checked
