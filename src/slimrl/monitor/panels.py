"""Defines the panels of a run for plots and for the viewer. This module does not draw them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel with curves of a run. `names` are its metrics. `log` makes the axis logarithmic, and `exact` turns off
    smoothing."""

    title: str
    names: tuple[str, ...]
    log: bool = False
    exact: bool = False


PANELS = (
    Panel("policy entropy (nats)", ("loss/entropy",)),
    Panel("gradient norm", ("optim/grad_norm",)),
    Panel("mismatch KL, sampler to trainer (nats)", ("guard/mismatch_kl",), log=True),
    Panel("tokens sampled per second", ("perf/tokens_sampled_per_s",)),
    Panel("tokens sampled per rollout", ("rollout/tokens_sampled_mean",)),
    Panel("zero-signal groups (share)", ("reward/zero_signal_groups",)),
    Panel("rollouts started and trained on", ("rollout/num", "rollout/num_trained")),
    Panel("rollouts cut off (share)", ("rollout/truncated",)),
    Panel("learning rate", ("optim/lr",), exact=True),
    Panel("supervised loss (nats/token)", ("sft/loss", "sft/val_loss")),
)
