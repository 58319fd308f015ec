"""The section `[trainer.loss]`: the loss that RL minimises.

A loss consists of four parts: the advantage estimator (`ADVANTAGES`), the credit assignment (`CREDITS`), the policy
loss of a token (`POLICIES`), and the aggregation over tokens. The tables have the hyperparameters of each part, with
the values from its paper. The setting `type` names a preset (`PRESETS`): a published combination of parts. Presets are
defined only here. The functions with the names of the parts are in `orchestrator/advantages.py` and
`trainer/losses.py`. A user-defined function is set by its location (`OWN`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from slimrl.config.base import Config

Hyperparameters = Mapping[str, float]

ADVANTAGES: dict[str, Hyperparameters] = {
    "grpo": {},
    "dr_grpo": {},
    "rloo": {},
    "opo": {},
    "reinforce": {"baseline": 0.5},
    "rae": {"decay": 0.95},
    "gae": {"gamma": 1.0, "gae_lambda": 0.95, "value_coef": 0.1, "value_lr": 1e-3},
}

CREDITS: dict[str, Hyperparameters] = {
    "episode": {},
    "turn": {"gamma": 1.0},
}

# Each policy loss of slimrl has a line here and a function with the same name in `trainer/losses.py`.
POLICIES: dict[str, Hyperparameters] = {
    "aipo": {"delta": 8.0},
    "clip": {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": 0.0},
    "gspo": {"eps_low": 3e-4, "eps_high": 4e-4},
    "cispo": {"eps_low": 1.0, "eps_high": 5.0},  # no lower bound
    "reinforce": {"max_weight": 0.0},
}

POLICY_NUMBERS = frozenset(name for numbers in POLICIES.values() for name in numbers)

# The parts that may be a user-defined function, with the number of its positional arguments.
OWN = {"policy": 1, "advantage": 2}

Aggregation = Literal["token", "sequence", "constant"]


@dataclass(frozen=True, slots=True)
class Preset:
    """A published algorithm. `hyperparameters` has the values that differ from the defaults of its advantage estimator
    and its policy loss."""

    advantage: str
    policy: str
    aggregation: Aggregation
    hyperparameters: Hyperparameters


PRESETS: dict[str, Preset] = {
    "aipo": Preset("dr_grpo", "aipo", "token", {}),
    "grpo": Preset("grpo", "clip", "sequence", {}),
    "dr_grpo": Preset("dr_grpo", "clip", "constant", {}),
    "dapo": Preset("grpo", "clip", "token", {"eps_high": 0.28}),
    "gspo": Preset("grpo", "gspo", "sequence", {}),
    "cispo": Preset("grpo", "cispo", "token", {}),
    "ppo": Preset("dr_grpo", "clip", "token", {}),
    "opo": Preset("opo", "reinforce", "token", {}),
    "rloo": Preset("rloo", "reinforce", "token", {}),
    "reinforce": Preset("reinforce", "reinforce", "token", {}),
}

# With a teacher, each of the three terms has this weight. Without a teacher, the advantage has weight 1 and the other
# terms have weight 0.
TAU_WITH_TEACHER = 0.5

if TYPE_CHECKING:
    LossType = str
    Advantage = str
    Credit = str
    Policy = str
else:  # the names are only in the tables, so the type checker cannot know them
    LossType, Advantage = Literal[tuple(PRESETS)], Literal[tuple(ADVANTAGES)]
    Credit, Policy = Literal[tuple(CREDITS)], Literal[tuple(POLICIES)]

Place = Annotated[str, Field(pattern=r"^.+:\w+$"), "path/to/file.py:function"]
"""The place of a user's function: in a file, or `package.module:function`."""

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class ResolvedLoss:
    """A loss with values for all its parts. A hyperparameter that none of the parts uses is 0.0.

    `policy_args` are the keyword arguments of the policy loss. `advantage_args` are the keyword arguments of a
    user-defined advantage function; the hyperparameters of slimrl's estimators are fields instead. `estimate` is the
    user-defined advantage function after it is loaded (`orchestrator/roles.py`).
    """

    advantage: str
    credit: str
    policy: str
    aggregation: Aggregation
    policy_args: Mapping[str, Any] = field(default_factory=dict)
    advantage_args: Mapping[str, Any] = field(default_factory=dict)
    estimate: Callable[..., Sequence[float]] | None = None
    baseline: float = 0.0
    decay: float = 0.0
    gamma: float = 0.0
    gae_lambda: float = 0.0
    value_coef: float = 0.0
    value_lr: float = 0.0
    kl_beta: float = 0.0
    adv_tau: float = 1.0
    teacher_tau: float = 0.0
    student_tau: float = 0.0

    @property
    def has_critic(self) -> bool:
        """True if the advantages of tokens are estimated with a value head."""
        return self.advantage == "gae"

    @property
    def is_group_relative(self) -> bool:
        """True if the advantage of a rollout depends on the other rollouts of its group."""
        return self.adv_tau > 0 and self.advantage in ("grpo", "dr_grpo", "rloo", "opo")


class LossConfig(Config):
    """The loss that RL minimises. The key `type` alone is enough; each other key replaces one part of the preset."""

    type: LossType = "aipo"
    """A published algorithm: `aipo` (importance weights with a one-sided cap, 2505.24034), `grpo` (2402.03300),
    `dr_grpo` (2503.20783), `dapo` (2503.14476), `gspo` (ratio of the whole sequence, 2507.18071), `cispo`
    (2506.13585), `ppo` (clipped, 1707.06347; with `advantage = "gae"` it has a value head), `opo` (length-weighted
    baseline, 2505.23585), `rloo` (leave-one-out, 2402.14740), `reinforce` (constant baseline)."""

    advantage: Literal["preset"] | Advantage | Place = "preset"
    """How the rewards of a group become advantages. `gae` compares with the estimate of a value head instead of the
    group's mean (1506.02438), `rae` with a running mean of the role's rewards in earlier groups, for a policy that
    plays against itself (2506.24119). Your own function is named as `path/to/file.py:function` or
    `package.module:function`. `preset` leaves it to `type`."""

    advantage_args: dict[str, Any] = Field(default={})
    """Keyword arguments of your own function in `advantage`."""

    credit: Credit = "episode"
    """How rewards are assigned to turns. `episode` gives all turns the episode's advantage. `turn` compares the rewards
    from each turn on with the same turn of the group's other rollouts."""

    policy: Literal["preset"] | Policy | Place = "preset"
    """The loss of one token. Your own function is named as `path/to/file.py:function` or `package.module:function`;
    `preset` leaves it to `type`."""

    policy_args: dict[str, Any] = Field(default={})
    """Keyword arguments of your own function in `policy`: its hyperparameters."""

    aggregation: Literal["preset"] | Aggregation = "preset"
    """The divisor of the sum over tokens: `token` all trained tokens of the batch, `sequence` each rollout's own tokens
    and then the rollouts, `constant` rollouts times `seq_len`; `preset` leaves it to `type`."""

    delta: Literal["preset"] | Positive = "preset"
    """Cap of the importance weight in the policy loss `aipo`; `preset` is 8."""

    eps_low: Literal["preset"] | Share = "preset"
    """The policy losses `clip`, `gspo` and `cispo` clip the ratio below at 1 - eps_low; `preset` is the value of the
    paper: 0.2 (`clip`), 0.0003 (`gspo`), 1 (`cispo`: no lower bound)."""

    eps_high: Literal["preset"] | NotNegative = "preset"
    """The same losses clip the ratio above at 1 + eps_high; `preset` is 0.2 (`clip`), 0.28 (`dapo`), 0.0004 (`gspo`), 5
    (`cispo`)."""

    dual_clip: Literal["preset"] | NotNegative = "preset"
    """The policy loss `clip` bounds the ratio of a token with a negative advantage, which has no other bound, at this
    value above 1 (1912.09729 has 3); `preset` is 0: no bound."""

    max_weight: Literal["preset"] | NotNegative = "preset"
    """The policy loss `reinforce` weighs stale tokens by their ratio, up to this cap (truncated importance sampling);
    `preset` is 0: it does not weigh them."""

    baseline: Literal["preset"] | float = "preset"
    """The constant that the advantage `reinforce` subtracts from the reward; `preset` is 0.5."""

    decay: Literal["preset"] | Annotated[float, Field(ge=0, lt=1)] = "preset"
    """Decay of the running mean of the advantage `rae`, for each new reward; `preset` is 0.95."""

    gamma: Literal["preset"] | Share = "preset"
    """Discount of a reward for the turn before (credit `turn`) or the token before (advantage `gae`); `preset` is 1."""

    gae_lambda: Literal["preset"] | Share = "preset"
    """Lambda of the advantage `gae`: 1 uses rewards alone, 0 the value head one token ahead; `preset` is 0.95."""

    value_coef: Literal["preset"] | NotNegative = "preset"
    """Weight of the value loss of the advantage `gae` relative to the policy loss, in the gradient of the model that
    both share; `preset` is 0.1."""

    value_lr: Literal["preset"] | Positive = "preset"
    """Learning rate of the value head of the advantage `gae`; `preset` is 0.001."""

    kl_beta: float = Field(default=0.0, ge=0)
    """Weight of the KL divergence from the initial weights of RL (its k3 estimate, as in 2402.03300). 0 turns it off
    and saves the memory for their copy."""

    adv_tau: Literal["preset"] | NotNegative = "preset"
    """Weight of the reward's advantage; `preset` is 0.5 with a `[teacher]`, else 1."""

    teacher_tau: Literal["preset"] | NotNegative = "preset"
    """Weight of the teacher's log-probability of a token; `preset` is 0.5 with a `[teacher]`."""

    student_tau: Literal["preset"] | NotNegative = "preset"
    """Weight of the student's own log-probability, with a minus sign. Equal to `teacher_tau`, the two form a reverse KL
    divergence; alone it is an entropy bonus. `preset` is 0.5 with a `[teacher]`, else 0."""

    def resolve(self, has_teacher: bool = False) -> ResolvedLoss:
        """Return the preset of `type`, changed by the other settings of this section."""
        preset = PRESETS[self.type]
        advantage = preset.advantage if self.advantage == "preset" else self.advantage
        policy = preset.policy if self.policy == "preset" else self.policy
        own = POLICIES.get(policy, {})
        numbers: dict[str, float] = {**ADVANTAGES.get(advantage, {}), **CREDITS[self.credit], **own}
        if policy == preset.policy:  # a preset's clip range is valid only for the preset's policy loss
            numbers |= preset.hyperparameters
        if has_teacher:
            numbers |= dict.fromkeys(("adv_tau", "teacher_tau", "student_tau"), TAU_WITH_TEACHER)
        aggregation = preset.aggregation if self.aggregation == "preset" else self.aggregation
        numbers |= self.overrides()
        policy_args = {**self.policy_args, **{name: numbers[name] for name in own}}
        others: dict[str, Any] = {name: value for name, value in numbers.items() if name not in POLICY_NUMBERS}
        choices = advantage, self.credit, policy, aggregation
        return ResolvedLoss(*choices, policy_args=policy_args, advantage_args=self.advantage_args, **others)

    def overrides(self) -> dict[str, float]:
        """Return the hyperparameters that are set in this section and so replace values of the preset."""
        return {name: value for name, value in vars(self).items() if isinstance(value, float)}
