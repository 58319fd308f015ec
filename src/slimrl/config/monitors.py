"""The section `[monitors]`: the alarms of a run."""

from typing import Literal, get_args

from pydantic import Field

from slimrl.config.base import Config

MonitorName = Literal[
    "mismatch",
    "entropy_collapse",
    "length",
    "repetition",
    "one_reply",
    "invalid_calls",
    "zero_signal",
    "judge",
    "held_out_gap",
    "reward_hacking",
]
MONITOR_NAMES: tuple[MonitorName, ...] = get_args(MonitorName)


class MonitorsConfig(Config):
    """Monitors of a run's health (docs/monitors.md). An alarm is shown on the console, written to `monitors.jsonl`, and
    counted in `monitor/alarms`. It does not end the run."""

    enabled: bool = True
    """Watch the run. False also omits the numbers `monitor/...`."""

    off: list[MonitorName] = Field(default=[])
    """Monitors that raise no alarm."""

    max_mismatch_factor: float = Field(default=5.0, gt=1)
    """`mismatch`: `guard/mismatch_kl` may grow to this multiple of its value in the first step, and always to 1e-5 in
    float32, 5e-3 in coarser dtypes, and 0.3 if rollouts are older than the weights that they train."""

    min_entropy_share: float = Field(default=0.1, ge=0, lt=1)
    """`entropy_collapse`: within 20 steps the entropy may fall to this share, unless the tasks are solved."""

    min_entropy: float = Field(default=0.002, ge=0)
    """`entropy_collapse`: lowest entropy in nats per token, unless the tasks are solved."""

    max_length_factor: float = Field(default=2.0, gt=1)
    """`length`: replies may grow or shrink by this factor within 20 steps."""

    max_repetition: float = Field(default=0.4, gt=0, le=1)
    """`repetition`: largest share of a reply's 4-grams of tokens that occur earlier in it."""

    max_same_reply: float = Field(default=0.7, gt=0, le=1)
    """`one_reply`: largest share of the replies to different tasks with the same last line."""

    max_invalid_share: float = Field(default=0.5, gt=0, le=1)
    """`invalid_calls`: largest share of calls or replies that the environment cannot read, if it does not fall."""

    max_zero_signal: float = Field(default=0.95, gt=0, le=1)
    """`zero_signal`: largest share of groups without a signal, unless the tasks are solved."""

    max_judge_disagreement: float = Field(default=0.4, gt=0, le=1)
    """`judge`: largest share of answers about which a judge and the comparison of words disagree."""

    min_held_out_share: float = Field(default=0.5, gt=0, le=1)
    """`held_out_gap`: smallest share of the training reward's rise that the held-out reward must show."""

    max_wrong_reward: float = Field(default=0.95, gt=0, le=1)
    """`reward_hacking`: largest reward of wrong answers, as a share of the reward of right ones."""

    min_dependence_share: float = Field(default=0.4, ge=0, lt=1)
    """`reward_hacking`: while the reward rises, `monitor/task_dependence` may fall to this share of its first value."""


# The monitor that uses each bound: the first word of the bound's text.
BOUNDS = {
    name: field.description.split("`")[1]
    for name, field in MonitorsConfig.model_fields.items()
    if field.description and field.description.startswith("`")
}
