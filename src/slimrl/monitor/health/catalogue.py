"""All monitors, each with its detector, the healthy values, the likely cause of a fault, and the setting to change.

`python -m tests.monitor.pages monitors` renders the table of docs/monitors.md, and a test compares the two.
"""

from dataclasses import dataclass

from slimrl.config.monitors import MONITOR_NAMES, MonitorName, MonitorsConfig
from slimrl.monitor.health.hacking import reward_hacking
from slimrl.monitor.health.history import Detection, Detector, History
from slimrl.monitor.health.rewards import gap_to_held_out, judge, reward_spread, zero_signal
from slimrl.monitor.health.sampling import duplicates, entropy_collapse, mismatch
from slimrl.monitor.health.texts import invalid_calls, length, one_reply, repetition


@dataclass(frozen=True, slots=True)
class HealthMonitor:
    """A monitor: its detector, its texts for users, and `patience`, the number of bad findings in a row before an
    alarm."""

    name: MonitorName
    meaning: str
    healthy: str
    cause: str
    knob: str
    detect: Detector
    patience: int = 2

    def look(self, history: History, bounds: MonitorsConfig) -> Detection | None:
        """Return the detector's first bad finding. If no finding is bad, return the first; None without findings."""
        found = [*self.detect(history, bounds)]
        return next((finding for finding in found if finding.is_bad), found[0] if found else None)


MONITORS = (
    HealthMonitor(
        "mismatch",
        "sampler and trainer give the same tokens other probabilities",
        "`guard/mismatch_kl` within 5 times that of the first step",
        "the sampler still has old weights, or computes in another way",
        "see that the sampler takes new weights (its log); a lower `max_async_level`; `--model.dtype float32` tells "
        "rounding from a fault",
        mismatch,
        patience=1,  # the guard may end the run at the next step
    ),
    HealthMonitor(
        "entropy_collapse",
        "the policy says the same every time before the tasks are solved",
        "entropy above a tenth of that 20 steps before, and above 0.002 nats a token, until the tasks are solved",
        "steps that are too large, or a reward that pays for one phrase",
        "a lower `trainer.optim.lr`, `trainer.loss.kl_beta`, `orchestrator.sampling.temperature = 1`",
        entropy_collapse,
    ),
    HealthMonitor(
        "length",
        "replies become longer, shorter or cut off within a few steps",
        "tokens per reply within a factor of 2 of those 20 steps before; `rollout/truncated` steady",
        "a reward that pays for length, or a policy that no longer ends its replies",
        "read the longest rollouts; take length out of the reward; `trainer.loss.type dr_grpo`, which does not divide "
        "by length; a `sampling.stop` text",
        length,
    ),
    HealthMonitor(
        "repetition",
        "replies go in circles",
        "`monitor/repetition` below 0.4",
        "a policy that degrades, or a reward that counts words",
        "a lower `trainer.optim.lr`; read rollouts; have the environment give nothing for text that repeats itself",
        repetition,
    ),
    HealthMonitor(
        "one_reply",
        "most replies to different tasks say one thing",
        "`monitor/same_reply` below 0.7, until the tasks are solved",
        "one answer is right so often that saying it always pays, or the reward does not read the answer",
        "`slimrl check` shows what the best constant answer earns; tasks with more answers; a reward that pays rare "
        "answers more",
        one_reply,
    ),
    HealthMonitor(
        "invalid_calls",
        "the environment cannot read calls or replies",
        "`env/invalid_share` below 0.5, `env/tagged` and `env/valid` above, or on the way there",
        "the form was never learned, or is being lost",
        "a warm-up (`warmup.max_steps`), a plainer instruction, a larger `sampling.max_tokens`; if it rises, a lower "
        "`trainer.optim.lr`",
        invalid_calls,
    ),
    HealthMonitor(
        "reward_spread",
        "the reward is the same whatever the policy replies",
        "`monitor/spread_within` above 0.02",
        "an environment or judge that does not read the reply, or a reward that only the task decides",
        "`slimrl play` shows what a reply earns; mend the reward",
        reward_spread,
    ),
    HealthMonitor(
        "zero_signal",
        "nearly no group has a learning signal, though the tasks are not solved",
        "`reward/zero_signal_groups` below 0.95",
        "tasks that are too hard or too easy, or a policy without variety",
        "other difficulty, partial credit, a warm-up, more `orchestrator.rollouts_per_example`",
        zero_signal,
    ),
    HealthMonitor(
        "duplicates",
        "rollouts of a group are equal more often than the policy's own probabilities make likely",
        "`monitor/duplicates` within 0.25 of `monitor/duplicates_expected`",
        "a sampler that draws the same numbers for several rollouts: one seed for all, or greedy decoding",
        "the sampler's seed and temperature; with `inference.base_url` the server's own settings",
        duplicates,
    ),
    HealthMonitor(
        "judge",
        "a judge gives one verdict whatever it reads, or often another than the comparison of words",
        "`env/judge_disagrees` below 0.4, and below 0.3 where nearly all its verdicts are the same",
        "a judge that is too weak, or is talked round by the policy",
        "`slimrl judge calibrate`; a larger judge; `judge = {}` compares words",
        judge,
    ),
    HealthMonitor(
        "held_out_gap",
        "the training reward rises, and that of held-out tasks does not follow",
        "at least half of the training reward's rise on held-out tasks",
        "tasks learned by heart, or too few of them",
        "more tasks; see that the splits share none; `eval.interval_steps` to see it sooner",
        gap_to_held_out,
        patience=1,  # evaluations are rare
    ),
    HealthMonitor(
        "reward_hacking",
        "the reward rises while the answers become worse",
        "replies that go on depending on the task; right answers that earn more than wrong ones, and do not become "
        "fewer",
        "a reward that something else than the right answer earns, such as a regular expression that any text meets",
        "read the rollouts that earn the most; make the reward strict; report a right answer as a metric `exact`",
        reward_hacking,
    ),
)

assert tuple(monitor.name for monitor in MONITORS) == MONITOR_NAMES
