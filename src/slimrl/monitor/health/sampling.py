"""Detectors of faults between policy, sampler and trainer: mismatch, entropy collapse, duplicates."""

from collections.abc import Iterator

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.history import NUM, Detection, History

KL = "guard/mismatch_kl"
FLOAT32_KL = 1e-6  # rounding is smaller in float32, and larger in coarser dtypes
LEAST_KL = {"float32": 1e-5, "coarser": 5e-3}
MOST_KL = 0.02  # for equal weights in sampler and trainer; the same bound as in the guard
STALE_KL = 0.3  # for rollouts older than the trained weights: their ratios differ without a fault
MOST_STALE = 0.5  # share of rollouts dropped as too old
COLLAPSED = 0.1  # nats; a higher entropy is not a collapse, even after a fast fall


def mismatch(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that the probabilities of sampler and trainer drift apart, for example because the sampler keeps old
    weights. Also detect that too many rollouts are dropped because of their age.

    With the same weights, sampler and trainer differ only by rounding, as in the first step. If the sampler keeps old
    weights, the divergence grows at each step. The detector finds this long before the divergence reaches the guard's
    bound.
    """
    if history.has(KL, 2):
        rounding = abs(history.values(KL)[0])
        bound = max(bounds.max_mismatch_factor * rounding, LEAST_KL["float32" if rounding < FLOAT32_KL else "coarser"])
        is_older = history.num("async/age_mean") > 0 and history.now("async/age_mean", 2 * NUM) > 0
        bound = max(bound, STALE_KL) if is_older else min(bound, MOST_KL)
        value = abs(history.now(KL))
        message = f"sampler and trainer differ by {value:.2g} nats a token, where at most {bound:.2g} is rounding"
        yield Detection(KL, value, value > bound, message + (" and the age of the rollouts" if is_older else ""))
    if history.row.get("rollout/started") and history.has("drop/stale", NUM):
        share = history.now("drop/stale") / history.now("rollout/started")
        message = f"{share:.0%} of the rollouts became too old and were played again"
        yield Detection("drop/stale", share, share > MOST_STALE, message)


def entropy_collapse(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect a policy that became deterministic before the tasks are solved (Cui et al. 2025, 2505.22617).

    A low entropy is fine if the reward is near the best so far. With a teacher, the entropy approaches the entropy of
    the teacher. That may be low, so only a sudden fall counts.
    """
    name = "monitor/surprise" if "monitor/surprise" in history.row else "loss/entropy"
    if history.has(name, NUM + 2):
        value, before = history.now(name), history.before(name)
        has_fallen = value < COLLAPSED and value < bounds.min_entropy_share * before
        has_teacher = "distill/teacher_logprob" in history.row
        is_gone = value < bounds.min_entropy and not has_teacher
        state = f"has fallen from {before:.2g} to" if has_fallen else "is"
        message = f"the policy's entropy {state} {value:.2g} nats a token"
        yield Detection(name, value, (has_fallen or is_gone) and not history.is_solved, message)


def duplicates(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that more rollouts of a group are equal than the policy's own probabilities predict.

    The cause is not the policy, because the prediction uses its probabilities. The sampler uses the same random numbers
    for several rollouts, or does not sample at all.
    """
    names = ("monitor/duplicates", "monitor/duplicates_expected")
    if all(history.has(name, 2) for name in names):
        equal, expected = (history.now(name) for name in names)
        is_bad = equal - expected > bounds.max_excess_duplicates
        message = f"{equal:.0%} of the pairs of a group are equal, where the policy's probabilities give {expected:.0%}"
        yield Detection(names[0], equal, is_bad, message)
