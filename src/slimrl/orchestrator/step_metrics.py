"""The metrics of a step's rollouts: their outcomes, rewards and ages."""

from collections import Counter
from collections.abc import Sequence

from slimrl.rollout.episode import FORM, mean_metrics
from slimrl.types import Metrics, Rollout


def rollout_metrics(played: Sequence[Rollout], started: int, stale: int, trained: int) -> Metrics:
    """Return the metrics of a step's rollouts. `played` includes failed rollouts. `started`, `stale` and `trained` are
    the numbers of rollouts that were started, dropped as too old, and trained on."""
    good = [rollout for rollout in played if not rollout.failure]
    metrics: Metrics = {
        "rollout/started": float(started),
        "rollout/num": float(len(played) + stale),
        "rollout/num_trained": float(trained),
        "rollout/tokens_sampled": float(sum(rollout.num_sampled for rollout in played)),
    }
    # Every rollout is counted as trained or as dropped. Rollouts without a signal are dropped as `zero_signal`.
    drops = Counter(rollout.failure for rollout in played if rollout.failure)
    drops += Counter(zero_signal=len(good) - trained, stale=stale)  # the sum of counters omits zeros
    metrics |= {f"drop/{reason}": float(count) for reason, count in drops.items()}
    rewards = [rollout.reward for rollout in good]
    mean, means = sum(rewards) / len(rewards), mean_metrics(good)
    metrics |= {
        "reward/mean": mean,
        "reward/std": (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5,
        "reward/min": min(rewards),
        "reward/max": max(rewards),
        "rollout/tokens_sampled_mean": sum(rollout.num_sampled for rollout in good) / len(good),
        "rollout/truncated": means.pop("truncated"),
        "rollout/turns_mean": means.pop("turns"),
    }
    # The remaining means are the environment's, and the agent loop's `unfinished` and `context_full`.
    groups = {name: "tools/form_" if name.startswith(FORM) else "env/" for name in means}
    return metrics | {f"{groups[name]}{name.removeprefix(FORM)}": mean for name, mean in means.items()}


def age_metrics(ages: Sequence[int]) -> Metrics:
    """Return a histogram of the ages of a batch's groups, in versions."""
    if not ages:
        return {}
    shares = {f"async/age_{age}": count / len(ages) for age, count in sorted(Counter(ages).items())}
    return shares | {"async/age_max": float(max(ages)), "async/age_mean": sum(ages) / len(ages)}
