"""The registry of all metrics: the meaning of each number, its unit, and its healthy values.

A name is `group/name`. A new metric needs a line here, and logging an unregistered name is an error. A name with
`<...>` at its end stands for all names with that prefix. After a change, run `python -m tests.monitor.pages >
docs/metrics.md`: that page is rendered from this file, and a test compares them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from slimrl.errors import nearest

Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `better` is empty if neither direction is good in itself. `low` and `high` are the bounds of healthy
    values, if `healthy` names a number that holds for every run."""

    name: str
    meaning: str
    unit: str
    better: Better
    healthy: str
    low: float | None = None
    high: float | None = None

    @property
    def group(self) -> str:
        """The part before the slash."""
        return self.name.partition("/")[0]

    @property
    def prefix(self) -> str:
        """The prefix of a name with `<...>` at its end; empty for any other name."""
        return self.name.partition("<")[0] if self.name.endswith(">") else ""


GROUPS = {
    "reward": "The training reward, over the rollouts of the step that have one.",
    "rollout": "The rollouts of the step.",
    "drop": "Rollouts that were not trained on, by reason. Summed over all steps so far: rollout/started = "
    "rollout/num_trained + drop/ + async/waiting + async/in_flight, the last two of the newest step.",
    "async": "How far apart sampling and training are. The age of a group of rollouts is the number of versions from "
    "the one at which it began to the one that it trains.",
    "env": "Metrics that the environments report about their episodes.",
    "loss": "The training objective. Means are over the tokens of the loss mask.",
    "distill": "Distillation: log-probabilities that teacher and student give to the tokens the student sampled.",
    "guard": "Agreement of sampler and trainer on the log-probabilities of the sampled tokens.",
    "monitor": "Numbers of the rollouts that the monitors of a run's health watch (docs/monitors.md).",
    "optim": "The optimizer.",
    "version": "The version of the weights.",
    "held_out": "Evaluation on held-out tasks, which are never trained on.",
    "sft": "Supervised fine-tuning, alone or as a warm-up before RL.",
    "perf": "Throughput and amount of computation.",
    "time": "Wall-clock time of the parts of a step.",
    "memory": "Memory.",
}

NOT_REPRODUCIBLE = frozenset({"time", "perf", "memory", "async"})  # groups that depend on the machine and its load
# Prefixes of metrics that depend on a judge's server: its speed, and the contents of its cache.
OF_A_SERVER = ("env/judge_", "held_out/judge_")

METRICS = (
    Metric("reward/mean", "mean reward of the rollouts", "reward", "higher", "rises, with noise"),
    Metric("reward/mean/<environment>", "the same for each of several environments", "reward", "higher", "rises"),
    Metric("reward/std", "standard deviation of the reward", "reward", "", "above 0; at 0 there is no learning signal"),
    Metric("reward/min", "lowest reward", "reward", "higher", ""),
    Metric("reward/max", "highest reward", "reward", "higher", "above the mean, else there is nothing to reinforce"),
    Metric(
        "reward/zero_signal_groups",
        "share of groups without a learning signal: all advantages are 0, as when all rewards are equal",
        "share",
        "lower",
        "below 0.5; near 1 the tasks are too easy or too hard",
        high=0.5,
    ),
    Metric("rollout/started", "rollouts started", "rollouts", "", "rollout/num at max_async_level 0"),
    Metric("rollout/num", "rollouts trained on or dropped", "rollouts", "", "the batch size plus resampled rollouts"),
    Metric("rollout/num_trained", "rollouts that were trained on", "rollouts", "", "rollout/num minus all drop/"),
    Metric("rollout/tokens_sampled", "tokens sampled by the policy in the step", "tokens", "", ""),
    Metric("rollout/tokens_sampled_mean", "mean number of sampled tokens per rollout", "tokens", "", "no sudden drift"),
    Metric(
        "rollout/truncated",
        "share of rollouts cut off by max_tokens or seq_len",
        "share",
        "lower",
        "below 0.1",
        high=0.1,
    ),
    Metric("rollout/turns_mean", "mean number of policy turns per rollout", "turns", "", "below max_turns"),
    Metric("drop/<reason>", "rollouts dropped for that reason", "rollouts", "lower", "0, but for drop/zero_signal"),
    Metric(
        "drop/stale",
        "rollouts of groups older than max_async_level, begun again",
        "rollouts",
        "lower",
        "0",
        high=0.0,
    ),
    Metric("async/age_<n>", "share of the trained groups that are that old", "share", "", "none above max_async_level"),
    Metric("async/age_mean", "mean age of the trained groups", "versions", "lower", "0 at max_async_level 0"),
    Metric("async/age_max", "largest age of a trained group", "versions", "lower", "at most max_async_level"),
    Metric("async/in_flight", "rollouts that are being played after the step", "rollouts", "", ""),
    Metric("async/waiting", "rollouts of finished groups that no batch has used yet", "rollouts", "", ""),
    Metric(
        "async/sampler_idle",
        "share of the time since the step before in which no request to the sampler was open",
        "share",
        "lower",
        "near 0 where sampler and trainer have a device each",
    ),
    Metric("env/judge_cached", "share of an LLM judge's verdicts that came from the cache", "share", "", ""),
    Metric("env/judge_s", "mean time of a verdict not in the cache, with retries", "s", "lower", "below the time-out"),
    Metric("env/judge_yes", "share of an LLM judge's verdicts that are yes", "share", "", "between 0.05 and 0.95"),
    Metric(
        "env/judge_disagrees",
        "share of answers about which an LLM judge and the comparison of words disagree",
        "share",
        "lower",
        "below 0.4; words err on the side of no",
        high=0.4,
    ),
    Metric("env/<name>", "mean of a metric that the environment reports", "its own", "", "see the environment"),
    Metric(
        "loss/kl_reference",
        "KL(policy || initial weights of RL) per token, estimated on the sampled tokens (k3 estimator)",
        "nats",
        "",
        "rises slowly; above 1 the policy is far from where it started",
        high=1.0,
    ),
    Metric("loss/value", "value loss: half of the value head's mean squared error", "reward^2", "lower", "falls"),
    Metric("loss/value_mean", "mean prediction of the value head", "reward", "", "near reward/mean"),
    Metric(
        "loss/value_explained",
        "explained variance: 1 minus the value head's mean squared error over the variance of the returns",
        "share",
        "higher",
        "rises above 0; below 0 it is worse than a constant",
        low=0.0,
    ),
    Metric("loss/policy", "policy loss (surrogate objective)", "nats", "", "near 0; only its gradient matters"),
    Metric("loss/entropy", "mean entropy of the policy per token", "nats", "", "falls slowly; 0 is entropy collapse"),
    Metric("loss/ratio_max", "largest importance ratio of a token", "ratio", "lower", "1 on-policy"),
    Metric(
        "loss/clipped",
        "share of tokens with a clipped ratio",
        "share",
        "lower",
        "0 on-policy; below 0.2",
        high=0.2,
    ),
    Metric("loss/tokens", "tokens trained on in the step", "tokens", "", ""),
    Metric("loss/nonfinite_tokens", "tokens with a loss of nan or infinity", "tokens", "lower", "0", high=0.0),
    Metric("distill/teacher_logprob", "mean log-probability under the teacher", "nats", "higher", "rises"),
    Metric("distill/student_logprob", "mean log-probability under the student", "nats", "", "minus the entropy"),
    Metric(
        "distill/reverse_kl",
        "KL(student || teacher) per token, estimated on the sampled tokens: student_logprob minus teacher_logprob",
        "nats",
        "lower",
        "falls; near 0 the student matches the teacher",
    ),
    Metric(
        "guard/max_logprob_gap",
        "largest absolute difference of a token's log-probability between trainer and sampler",
        "nats",
        "lower",
        "rounding only: below 1e-3 in float32, below 2 in bfloat16",
        high=2.0,
    ),
    Metric("guard/mean_logprob_gap", "mean of that absolute difference", "nats", "lower", "below 0.05", high=0.05),
    Metric(
        "guard/mismatch_kl",
        "KL(sampler || trainer), estimated on the sampled tokens",
        "nats",
        "lower",
        "below 1e-6 in float32, below 0.01 in bfloat16, below 0.02 with 8-bit weights",
        high=0.02,
    ),
    Metric("monitor/alarms", "alarms of monitors that stand", "alarms", "lower", "0", high=0.0),
    Metric(
        "monitor/surprise",
        "minus the mean log-probability of the sampled tokens, which estimates the entropy on all rollouts, trained on "
        "or not",
        "nats",
        "",
        "falls slowly; 0 is entropy collapse",
        low=0.002,
    ),
    Metric(
        "monitor/repetition",
        "share of 4-grams of tokens that occur earlier in their reply",
        "share",
        "lower",
        "below 0.4",
        high=0.4,
    ),
    Metric(
        "monitor/same_reply",
        "share of the replies to different tasks that end in the commonest line, in episodes of one turn",
        "share",
        "lower",
        "below 0.7 until the tasks are solved",
        high=0.7,
    ),
    Metric("monitor/duplicates", "share of pairs of rollouts of a task that are equal", "share", "", "near the next"),
    Metric(
        "monitor/duplicates_expected",
        "the share that the policy's probabilities give: the mean probability of a rollout",
        "share",
        "",
        "rises as a policy becomes sure",
    ),
    Metric(
        "monitor/spread_within",
        "share of the rewards' variance that lies within groups; the rest lies between tasks",
        "share",
        "",
        "above 0.02; near 0 the reward does not depend on the reply",
        low=0.02,
    ),
    Metric(
        "monitor/length_reward",
        "correlation of length and reward within groups",
        "correlation",
        "",
        "between -0.4 and 0.4",
        low=-0.4,
        high=0.4,
    ),
    Metric(
        "monitor/shared_across_tasks",
        "how much rollouts have in common across tasks: of a rollout's pairs of adjacent tokens, the mean share of "
        "other tasks' rollouts that a pair is in",
        "share",
        "",
        "steady; near 1 all replies are one text",
    ),
    Metric(
        "monitor/task_dependence",
        "how much more a rollout has in common with others of its task than with those of other tasks",
        "share",
        "higher",
        "rises; a fall to 0 means replies that do not depend on the task",
    ),
    Metric("monitor/right", "share of right answers, by the environment's own measure", "share", "higher", "rises"),
    Metric("monitor/right_reward", "mean reward of the right answers", "reward", "higher", "above the next"),
    Metric("monitor/wrong_reward", "mean reward of the others", "reward", "", "well below the one above"),
    Metric("optim/lr", "learning rate", "1", "", "follows the schedule"),
    Metric("optim/grad_norm", "L2 norm of the gradient before clipping", "1", "", "steady; spikes are clipped"),
    Metric("optim/skipped", "1 if the update was skipped for a non-finite gradient", "1", "lower", "0", high=0.0),
    Metric("version/policy", "weight version that sampled the rollouts", "version", "", "on-policy, the step"),
    Metric("held_out/reward_greedy", "mean reward with greedy decoding", "reward", "higher", "rises"),
    Metric("held_out/reward_greedy_low", "lower end of its 95% interval", "reward", "higher", ""),
    Metric("held_out/reward_greedy_high", "upper end of its 95% interval", "reward", "higher", ""),
    Metric("held_out/reward_sampled", "mean reward when sampling at temperature 1", "reward", "higher", "rises"),
    Metric("held_out/reward_sampled_low", "lower end of its 95% interval", "reward", "higher", ""),
    Metric("held_out/reward_sampled_high", "upper end of its 95% interval", "reward", "higher", ""),
    Metric(
        "held_out/reward_sampled_<T>",
        "mean reward at another temperature, as `held_out/reward_sampled_0.7`; likewise with `_low` and `_high`",
        "reward",
        "higher",
        "rises",
    ),
    Metric(
        "held_out/num",
        "rollouts per held-out mean, at least",
        "rollouts",
        "",
        "at least 200 for a conclusion",
        low=200.0,
    ),
    Metric("held_out/exact_<mode>", "share of exactly right answers, greedy or sampled", "share", "higher", "rises"),
    Metric("held_out/<score>", "mean of another metric of the evaluation", "its own", "", ""),
    Metric("sft/loss", "mean cross-entropy of the assistant's tokens", "nats/token", "lower", "falls"),
    Metric("sft/val_loss", "the same on the validation set", "nats/token", "lower", "falls; a rise is overfitting"),
    Metric("sft/tokens", "assistant tokens trained on in the step", "tokens", "", "about the same every step"),
    Metric("perf/tokens_sampled_per_s", "sampled tokens per second of rollout time", "tokens/s", "higher", "steady"),
    Metric("perf/tokens_trained_per_s", "trained tokens per second of training time", "tokens/s", "higher", "steady"),
    Metric("perf/prefill_tokens", "prompt tokens computed by the engine", "tokens", "lower", "shared ones count once"),
    Metric(
        "perf/unique_token_share",
        "share of the batch's tokens that the trainer computes, as shared prompts are computed once",
        "share",
        "lower",
        "far below 1 with long prompts",
    ),
    Metric("time/step_s", "the whole step", "s", "lower", "steady"),
    Metric("time/rollout_s", "sampling, environments and judges", "s", "lower", ""),
    Metric(
        "time/env_wait_s",
        "the part of time/rollout_s in which nothing was sampled: every episode waited for its environment or judge",
        "s",
        "lower",
        "a small part of time/step_s; max_async_level fills it with training",
    ),
    Metric("time/wait_batch_s", "how long the trainer waited for a batch of another process", "s", "lower", ""),
    Metric("time/wait_weights_s", "how long the orchestrator waited for the trainer's weights", "s", "lower", ""),
    Metric("time/teacher_s", "the teacher's log-probabilities", "s", "lower", "below time/train_s if it is the policy"),
    Metric("time/train_s", "forward and backward pass, optimizer", "s", "lower", ""),
    Metric("time/eval_s", "held-out evaluation", "s", "lower", ""),
    Metric("memory/peak_gb", "peak memory of the process or GPU", "GB", "lower", "flat after the first steps"),
)  # fmt: skip

_EXACT = {metric.name: metric for metric in METRICS if not metric.prefix}
# A full match excludes the bounds of the intervals (`_low` and `_high`).
_HELD_OUT_REWARD = re.compile(r"held_out/reward_(greedy|sampled(_[0-9.e+-]+)?)")
# Longest prefix first, so that `held_out/reward_sampled_<T>` is found before `held_out/<score>`.
_PREFIXED = sorted((metric for metric in METRICS if metric.prefix), key=lambda metric: -len(metric.prefix))


def lookup(name: str) -> Metric:
    """Return the registry's entry for a name: the entry with this name, or else the entry with the longest matching
    prefix.

    Raises:
        ValueError: if no entry matches. The message has the most similar registered name.
    """
    if name in _EXACT:
        return _EXACT[name]
    for metric in _PREFIXED:
        if name.startswith(metric.prefix) and name != metric.prefix:
            return metric
    known = [metric.name for metric in METRICS]
    raise ValueError(f"metric `{name}` is not registered in monitor/metrics.py.{nearest(name, known)}")


def select_held_out_rewards(names: Iterable[str]) -> list[str]:
    """Return the held-out mean rewards among `names`: one per decoding mode, without the bounds of the intervals."""
    return [name for name in names if _HELD_OUT_REWARD.fullmatch(name)]


def is_reproducible(name: str) -> bool:
    """Return True if a resumed run must repeat this metric bit for bit, on the same machine with the same threads."""
    return lookup(name).group not in NOT_REPRODUCIBLE and not name.startswith(OF_A_SERVER)
