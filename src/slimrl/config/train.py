"""How a batch changes the weights: `[trainer]` with `optim`, `schedule`, `loss` and `guard`.

A loss is three choices: how rewards become advantages, the loss of a token, and what the sum is divided by. A `type` is
a published combination of them, a preset; `PRESETS` is the table, and `LossConfig.choices` reads it. Nothing else in
slimrl knows what a preset consists of.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from slimrl.config.base import Config

LossType = Literal["aipo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "opo", "rloo", "reinforce"]
Advantage = Literal["grpo", "dr_grpo", "rloo", "opo", "reinforce"]
PolicyLoss = Literal["aipo", "clip", "gspo", "cispo", "reinforce"]
Aggregation = Literal["token", "sequence", "constant"]


@dataclass(frozen=True, slots=True)
class LossChoices:
    """A loss with nothing left to choose. A number that its advantage or policy does not use is 0.0."""

    advantage: Advantage
    policy: PolicyLoss
    aggregation: Aggregation
    delta: float
    eps_low: float
    eps_high: float
    baseline: float


PRESETS: dict[LossType, tuple[Advantage, PolicyLoss, Aggregation]] = {
    "aipo": ("dr_grpo", "aipo", "token"),
    "grpo": ("grpo", "clip", "sequence"),
    "dr_grpo": ("dr_grpo", "clip", "constant"),
    "dapo": ("grpo", "clip", "token"),
    "gspo": ("grpo", "gspo", "sequence"),
    "cispo": ("grpo", "cispo", "token"),
    "opo": ("opo", "reinforce", "token"),
    "rloo": ("rloo", "reinforce", "token"),
    "reinforce": ("reinforce", "reinforce", "token"),
}

# (eps_low, eps_high) of the policies that clip the ratio to 1 - eps_low .. 1 + eps_high; cispo has no lower bound.
CLIP_RANGES: dict[PolicyLoss, tuple[float, float]] = {"clip": (0.2, 0.2), "gspo": (3e-4, 4e-4), "cispo": (1.0, 5.0)}
DAPO_EPS_HIGH = 0.28
AIPO_DELTA = 8.0
REINFORCE_BASELINE = 0.5


class OptimConfig(Config):
    """AdamW."""

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
    """Gradients whose norm over all parameters is greater are scaled down to it."""


class ScheduleConfig(Config):
    """The learning rate over the run, as a multiple of `optim.lr`."""

    type: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up: stay at the peak, or fall to `min_lr_ratio` of it at the end of the run."""

    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises linearly to its peak."""

    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """What `linear` and `cosine` fall to, as a share of the peak."""


class LossConfig(Config):
    """What is minimised. `type` alone is enough; the other keys replace one part of it."""

    type: LossType = "aipo"
    """A published algorithm: `aipo` (importance weights with a one-sided cap, 2505.24034), `grpo` (2402.03300),
    `dr_grpo` (2503.20783), `dapo` (2503.14476), `gspo` (ratio of the whole sequence, 2507.18071), `cispo`
    (2506.13585), `opo` (length-weighted baseline, 2505.23585), `rloo` (leave-one-out, 2402.14740), `reinforce`
    (constant baseline)."""

    advantage: Literal["preset"] | Advantage = "preset"
    """How the rewards of a group become advantages; `preset` leaves it to `type`."""

    policy: Literal["preset"] | PolicyLoss = "preset"
    """The loss of one token; `preset` leaves it to `type`."""

    aggregation: Literal["preset"] | Aggregation = "preset"
    """What the sum over tokens is divided by: `token` all trained tokens of the batch, `sequence` each rollout's own
    tokens and then the rollouts, `constant` rollouts times `seq_len`; `preset` leaves it to `type`."""

    delta: Literal["preset"] | Annotated[float, Field(gt=0)] = "preset"
    """Cap of the importance weight in the policy loss `aipo`; `preset` is 8."""

    eps_low: Literal["preset"] | Annotated[float, Field(ge=0, le=1)] = "preset"
    """The policy losses `clip`, `gspo` and `cispo` clip the ratio below at 1 - eps_low; `preset` is the value of the
    paper: 0.2 (`clip`), 0.0003 (`gspo`), 1 (`cispo`: no lower bound)."""

    eps_high: Literal["preset"] | Annotated[float, Field(ge=0)] = "preset"
    """They clip it above at 1 + eps_high; `preset` is 0.2 (`clip`), 0.28 (`dapo`), 0.0004 (`gspo`), 5 (`cispo`)."""

    baseline: Literal["preset"] | float = "preset"
    """The constant that the advantage `reinforce` subtracts from the reward; `preset` is 0.5."""

    def choices(self) -> LossChoices:
        """The preset with this section's replacements applied."""
        advantage, policy, aggregation = PRESETS[self.type]
        advantage = advantage if self.advantage == "preset" else self.advantage
        policy = policy if self.policy == "preset" else self.policy
        low, high = CLIP_RANGES.get(policy, (0.0, 0.0))
        high = DAPO_EPS_HIGH if self.type == "dapo" and policy == "clip" else high
        delta = AIPO_DELTA if policy == "aipo" else 0.0
        baseline = REINFORCE_BASELINE if advantage == "reinforce" else 0.0
        return LossChoices(
            advantage=advantage,
            policy=policy,
            aggregation=aggregation if self.aggregation == "preset" else self.aggregation,
            delta=delta if self.delta == "preset" else self.delta,
            eps_low=low if self.eps_low == "preset" else self.eps_low,
            eps_high=high if self.eps_high == "preset" else self.eps_high,
            baseline=baseline if self.baseline == "preset" else self.baseline,
        )


class GuardConfig(Config):
    """Stops the run when the trainer and the sampler disagree about the tokens that were just sampled.

    Both run the same weights, so each token's log-probability must agree but for rounding. A larger difference means
    that the gradient is of another distribution than the one sampled from, and the run would learn from noise.
    """

    max_logprob_gap: float = Field(default=5.0, gt=0)
    """Largest difference of one token's log-probability, in nats. Rounding alone gives 1e-4 in float32; in bfloat16 a
    single unlikely token may differ by more than 1."""

    max_mismatch_kl: float = Field(default=0.02, gt=0)
    """Largest mean of `rho - log rho - 1` over a batch, with rho the ratio of the two probabilities. Rounding alone
    gives 0.001 to 0.005 in bfloat16, and up to 0.012 was seen with `inference.quantization = int8`."""


class TrainerConfig(Config):
    """Turns rollouts into a weight update."""

    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    loss: LossConfig = LossConfig()
    guard: GuardConfig = GuardConfig()

    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Tokens in one forward and backward pass. Lower saves memory; the gradient is the same. At least `seq_len`."""
