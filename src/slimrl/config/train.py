"""The section `[trainer]` with `optim`, `schedule` and `guard`. `loss.py` has the section `loss`."""

from typing import Literal

from pydantic import Field

from slimrl.config.base import Config
from slimrl.config.loss import LossConfig


class OptimConfig(Config):
    """The optimizer AdamW."""

    lr: float = Field(default=1e-5, gt=0)
    """Peak learning rate."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay, applied to matrices and not to norms or biases."""

    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean of the gradients."""

    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of the mean of the squared gradients."""

    eps: float = Field(default=1e-8, gt=0)
    """Added to the denominator of the update."""

    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients with a larger norm over all parameters are scaled down to it."""


class ScheduleConfig(Config):
    """The learning rate over the run, as a multiple of `optim.lr`."""

    type: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up: stay at the peak, or fall to `min_lr_ratio` of it at the end of the run."""

    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises linearly to its peak."""

    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """The final rate of `linear` and `cosine`, as a share of the peak."""


class GuardConfig(Config):
    """Stops the run when the trainer and the sampler disagree about the tokens that were just sampled.

    Both run the same weights, so each token's log-probability must agree up to rounding. A larger difference means that
    the gradient belongs to another distribution than the tokens, and the run would learn from noise.
    """

    max_logprob_gap: float = Field(default=5.0, gt=0)
    """Largest difference of one token's log-probability, in nats. Rounding alone gives 1e-4 in float32; in bfloat16 a
    single unlikely token may differ by more than 1."""

    max_mismatch_kl: float = Field(default=0.02, gt=0)
    """Largest mean of `rho - log rho - 1` over a batch, with rho the ratio of the two probabilities. Rounding alone
    gives 0.001 to 0.005 in bfloat16."""


class PassConfig(Config):
    """The forward and backward passes of a step."""

    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Tokens in one forward and backward pass; a longer conversation has a separate pass. Lower saves memory; the
    gradient is the same."""

    activation_checkpointing: bool = False
    """Keep only each layer's input for the backward pass, and compute the rest again: half the memory for 1.5 times the
    time, measured with 2,048 tokens through 24 layers. The gradient is the same."""


class TrainerConfig(PassConfig):
    """Turns rollouts into a weight update."""

    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    loss: LossConfig = LossConfig()
    guard: GuardConfig = GuardConfig()
