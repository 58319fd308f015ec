"""The one registry of metrics: what each number means, its unit, and what a healthy value looks like.

A name is `group/name`. Adding a metric is adding a line here; logging a name that is not here is an error. A name that
ends in `<...>` is a family: any name with that prefix belongs to it. Run `python -m slimrl.monitor.metrics >
docs/metrics.md` after a change: the docs are rendered from this file, and a test compares them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from slimrl.errors import nearest

Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `better` is empty where neither direction is good in itself."""

    name: str
    meaning: str
    unit: str
    better: Better
    healthy: str

    @property
    def group(self) -> str:
        """The part before the slash."""
        return self.name.partition("/")[0]

    @property
    def prefix(self) -> str:
        """What every name of a family begins with; empty for a metric that is not a family."""
        return self.name.partition("<")[0] if self.name.endswith(">") else ""


GROUPS = {
    "reward": "What the policy earned in training, over the rollouts of the step that have a reward.",
    "rollout": "The episodes that the step collected.",
    "drop": "Episodes that could not be trained on, counted by reason. Started = trained + dropped, always.",
    "env": "What the environments report about their episodes.",
    "loss": "The objective, over the trained tokens.",
    "distill": "Distillation, over the trained tokens: what teacher and student think of what the student sampled.",
    "guard": "Whether sampler and trainer agree on the sampled tokens.",
    "optim": "The optimizer.",
    "version": "Which weights were used.",
    "held_out": "Evaluation on tasks that training never sees.",
    "sft": "Supervised fine-tuning, alone or as a warm-up.",
    "perf": "Speed and work.",
    "time": "Where the time went.",
    "memory": "Memory.",
}

NOT_REPRODUCIBLE = frozenset({"time", "perf", "memory"})  # groups
OF_A_SERVER = ("env/judge_", "held_out/judge_")

METRICS = (
    Metric("reward/mean", "mean reward of the rollouts", "reward", "higher", "rises, with noise"),
    Metric("reward/std", "standard deviation of the reward", "reward", "", "above 0: no spread, no signal"),
    Metric("reward/min", "lowest reward", "reward", "higher", ""),
    Metric("reward/max", "highest reward", "reward", "higher", "above the mean: there is something to learn from"),
    Metric(
        "reward/zero_signal_groups",
        "share of sampled groups without a signal: every advantage is 0, as when all rewards are equal",
        "share",
        "lower",
        "below 0.5; near 1 the tasks are too easy or too hard",
    ),
    Metric("rollout/num", "episodes started", "rollouts", "", "the batch size, plus what resampling added"),
    Metric("rollout/num_trained", "episodes that reached the trainer", "rollouts", "", "rollout/num less all drop/"),
    Metric("rollout/tokens_sampled", "tokens the policy sampled in the step", "tokens", "", ""),
    Metric("rollout/tokens_sampled_mean", "tokens the policy sampled in an episode", "tokens", "", "no sudden drift"),
    Metric("rollout/truncated", "share of episodes cut by max_tokens or seq_len", "share", "lower", "below 0.1"),
    Metric("rollout/turns_mean", "policy turns in an episode", "turns", "", "below max_turns"),
    Metric("drop/<reason>", "episodes dropped for that reason", "rollouts", "lower", "0"),
    Metric("env/judge_cached", "share of a language model's verdicts that were in the cache", "share", "", ""),
    Metric("env/judge_s", "time of a verdict that was not in the cache, all tries", "s", "lower", "below the time-out"),
    Metric("env/<name>", "mean of a metric that the environment reports", "its own", "", "see the environment"),
    Metric(
        "loss/kl_reference",
        "KL divergence of the policy from the weights that RL began with, at the sampled tokens (k3 estimate)",
        "nats",
        "",
        "rises slowly; above 1 the policy has left its origin",
    ),
    Metric("loss/value", "half of the mean squared error of the value head", "reward^2", "lower", "falls"),
    Metric("loss/value_mean", "what the value head expects, on average", "reward", "", "near reward/mean"),
    Metric(
        "loss/value_explained",
        "share of the returns' variance that the value head explains",
        "share",
        "higher",
        "rises above 0; below 0 it does harm",
    ),
    Metric("loss/policy", "the policy loss", "nats", "", "near 0; its value says little, its gradient is what counts"),
    Metric("loss/entropy", "mean entropy at the trained tokens", "nats", "", "falls slowly; 0 is collapse"),
    Metric("loss/ratio_max", "largest importance ratio of a token", "ratio", "lower", "1 on-policy"),
    Metric("loss/clipped", "share of tokens where the ratio cap acted", "share", "lower", "0 on-policy; below 0.2"),
    Metric("loss/tokens", "tokens trained in the step", "tokens", "", ""),
    Metric("loss/nonfinite_tokens", "trained tokens with a non-finite loss", "tokens", "lower", "0"),
    Metric("distill/teacher_logprob", "mean log-probability that the teacher gives", "nats", "higher", "rises"),
    Metric("distill/student_logprob", "mean log-probability that the student gives", "nats", "", "minus the entropy"),
    Metric(
        "distill/reverse_kl",
        "KL(student || teacher) of a token, estimated on the sampled ones: student_logprob less teacher_logprob",
        "nats",
        "lower",
        "falls; near 0 the student has what the teacher's context gives",
    ),
    Metric(
        "guard/max_logprob_gap",
        "largest |trainer - sampler| log-probability of a token",
        "nats",
        "lower",
        "rounding only: below 1e-3 in float32, below 2 in bfloat16",
    ),
    Metric("guard/mean_logprob_gap", "mean |trainer - sampler| log-probability", "nats", "lower", "below 0.05"),
    Metric(
        "guard/mismatch_kl",
        "KL(sampler || trainer), estimated on the sampled tokens",
        "nats",
        "lower",
        "below 1e-6 in float32, below 0.01 in bfloat16, below 0.02 with weights of 8 bits",
    ),
    Metric("optim/lr", "learning rate", "1", "", "as scheduled"),
    Metric("optim/grad_norm", "norm of the gradient before clipping", "1", "", "steady; spikes are clipped"),
    Metric("optim/skipped", "1 if the gradient was not finite and nothing was updated", "1", "lower", "0"),
    Metric("version/policy", "weight version that sampled the step's rollouts", "version", "", "the step, on-policy"),
    Metric("held_out/reward_greedy", "mean reward, greedy decoding", "reward", "higher", "rises"),
    Metric("held_out/reward_greedy_low", "lower end of its 95% interval", "reward", "higher", ""),
    Metric("held_out/reward_greedy_high", "upper end of its 95% interval", "reward", "higher", ""),
    Metric("held_out/reward_sampled", "mean reward, sampled at temperature 1", "reward", "higher", "rises"),
    Metric("held_out/reward_sampled_low", "lower end of its 95% interval", "reward", "higher", ""),
    Metric("held_out/reward_sampled_high", "upper end of its 95% interval", "reward", "higher", ""),
    Metric(
        "held_out/reward_sampled_<T>",
        "mean reward, sampled at another temperature: `held_out/reward_sampled_0.7`; likewise with `_low` and `_high`",
        "reward",
        "higher",
        "rises",
    ),
    Metric("held_out/num", "episodes behind each held-out number, at least", "rollouts", "", "200 or more for a claim"),
    Metric("held_out/exact_<mode>", "share of exactly right answers, greedy or sampled", "share", "higher", "rises"),
    Metric("held_out/<score>", "mean of another score that the evaluation reports", "its own", "", ""),
    Metric("sft/loss", "cross-entropy of the assistant's tokens", "nats/token", "lower", "falls"),
    Metric("sft/val_loss", "the same on the validation set", "nats/token", "lower", "falls; rising is overfitting"),
    Metric("sft/tokens", "assistant tokens trained in the step", "tokens", "", "about the same every step"),
    Metric("perf/tokens_sampled_per_s", "tokens sampled a second, while rolling out", "tokens/s", "higher", "steady"),
    Metric("perf/tokens_trained_per_s", "tokens trained a second, while training", "tokens/s", "higher", "steady"),
    Metric("perf/prefill_tokens", "prompt tokens that the engine computed", "tokens", "lower", "shared ones once"),
    Metric(
        "perf/unique_token_share",
        "share of the batch's tokens that had to be computed, shared prompts once",
        "share",
        "lower",
        "far below 1 with long prompts",
    ),
    Metric("time/step_s", "the whole step", "s", "lower", "steady"),
    Metric("time/rollout_s", "sampling and environments", "s", "lower", ""),
    Metric("time/teacher_s", "the teacher's scores", "s", "lower", "below time/train_s for the policy's own weights"),
    Metric("time/train_s", "forward, backward, optimizer", "s", "lower", ""),
    Metric("time/eval_s", "held-out evaluation", "s", "lower", ""),
    Metric("memory/peak_gb", "peak memory of the process, or of the GPU", "GB", "lower", "flat after the first steps"),
)  # fmt: skip

_EXACT = {metric.name: metric for metric in METRICS if not metric.prefix}
_HELD_OUT_REWARD = re.compile(r"held_out/reward_(greedy|sampled(_[0-9.e+-]+)?)")
_FAMILIES = sorted((metric for metric in METRICS if metric.prefix), key=lambda metric: -len(metric.prefix))


def lookup(name: str) -> Metric:
    """The registry's entry for a name: its own line first, else the family with the longest prefix.

    Raises ValueError when there is none, naming the nearest registered name.
    """
    if name in _EXACT:
        return _EXACT[name]
    for family in _FAMILIES:
        if name.startswith(family.prefix) and name != family.prefix:
            return family
    known = [metric.name for metric in METRICS]
    raise ValueError(f"metric `{name}` is not registered in monitor/metrics.py.{nearest(name, known)}")


def select_held_out_rewards(names: Iterable[str]) -> list[str]:
    """The held-out mean rewards among the names, one for each way of decoding, without the ends of their intervals."""
    return [name for name in names if _HELD_OUT_REWARD.fullmatch(name)]


def is_reproducible(name: str) -> bool:
    """Whether a resumed run must give this metric bit for bit (synchronous, same machine and threads)."""
    return lookup(name).group not in NOT_REPRODUCIBLE and not name.startswith(OF_A_SERVER)


def render_docs(metrics: Iterable[Metric] = METRICS) -> str:
    """The registry as markdown: one table a group. This is docs/metrics.md."""
    metrics = tuple(metrics)
    lines = ["# Metrics", "", "Rendered from `src/slimrl/monitor/metrics.py`: `python -m slimrl.monitor.metrics`."]
    lines += ["", *FILE_FORMAT]
    for group, about in GROUPS.items():
        lines += ["", f"## {group}/", "", about, "", "| name | meaning | unit | better | healthy |"]
        lines += ["|---|---|---|---|---|"]
        for metric in (metric for metric in metrics if metric.group == group):
            cells = (f"`{metric.name}`", metric.meaning, metric.unit, metric.better, metric.healthy)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


FILE_FORMAT = (
    "A run writes them to `output_dir/metrics.jsonl`: one JSON object a line, `step` and the metrics of that step;",
    "a step may have several lines (training, evaluation). A number that is not finite is written as `null`, and the",
    'object then carries `"nonfinite": {"loss/policy": "nan"}`, so every line is valid JSON and nothing is lost.',
    "",
    "`step` counts finished optimizer steps: training metrics of the first step and the evaluation before it are at 0.",
    "Groups `time/`, `perf/` and `memory/` depend on the machine, and `env/judge_...` and `held_out/judge_...` on a",
    "server; a resumed run gives every other metric bit for bit.",
)


if __name__ == "__main__":
    print(render_docs(), end="")
