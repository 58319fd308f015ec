"""Loads the advantage function of a user."""

from dataclasses import replace
from functools import partial

from slimrl.config.loss import ADVANTAGES, OWN, ResolvedLoss
from slimrl.io.user_code import load_function


def load_estimate(loss: ResolvedLoss) -> ResolvedLoss:
    """Return the loss. If its advantage is a user's own function, `estimate` is set to that function. Raises UserError
    if the function does not exist or does not accept `advantage_args`."""
    if loss.advantage in ADVANTAGES:
        return loss
    own = load_function(loss.advantage, "advantage", loss.advantage_args, OWN["advantage"])
    return replace(loss, estimate=partial(own, **loss.advantage_args))
