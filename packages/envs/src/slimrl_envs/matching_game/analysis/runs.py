"""The recorded games of a run, as one row of numbers each. The module knows nothing of plots or comparisons."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.monitor.rollouts import read_rollouts
from slimrl.types import Rollout
from slimrl_envs.matching_game.rules.protocol import split_tag
from slimrl_envs.matching_game.rules.questions import count_questions

GAME_METRICS = frozenset(
    {"agreed", "distinct_questions", "messages", "own_view", "questions"}
)  # which no other environment has together
SHARE = 5  # a run's beginning is the first fifth of its steps, its end the last
MEASURES = ("before", "proposed", "distinct", "questions", "marks", "words", "score_seeking", "turns", "reward")
GIVE_A_RUN = "Give `--log_dir` the output_dir of a run of `rl`"


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished game of the policy. `role` is empty but for a policy that plays itself.

    `values` has a number for each of `MEASURES`. `before` counts the different questions before its first proposal.
    Losing cannot cause these, as it causes later ones: after a rejection a shy partner wants to be asked again. It is
    missing without a proposal, because then all questions would count, and a policy that learns to propose would seem
    to ask less. `distinct` and `questions` are the environment's own counts over legal messages; `marks`, `words` and
    `score_seeking` are counted by `rules/questions.py` in everything that was meant as a message.
    """

    step: int
    task_id: str
    role: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """The games of a run, and how many of its rollouts were left out: failed ones, and ones of other environments."""

    name: str
    start: str
    """What its first step had been taught."""
    episodes: tuple[Episode, ...]
    num_failed: int
    num_others: int

    @property
    def steps(self) -> list[int]:
        """The steps that have a game, in order."""
        return sorted({episode.step for episode in self.episodes})

    @property
    def early_games(self) -> list[Episode]:
        """The games of its first steps."""
        return self._of(self.steps[: self._num_steps])

    @property
    def late_games(self) -> list[Episode]:
        """The games of its last steps; no game is in both, unless there is one step only."""
        return self._of(self.steps[-self._num_steps :])

    @property
    def _num_steps(self) -> int:
        return max(1, len(self.steps) // SHARE)

    def _of(self, steps: Sequence[int]) -> list[Episode]:
        return [episode for episode in self.episodes if episode.step in steps]


def values_of(episodes: Sequence[Episode], measure: str) -> list[float]:
    """One of `MEASURES` of each episode that has it."""
    return [episode.values[measure] for episode in episodes if measure in episode.values]


def group_by_task(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """The games of each task of each step: they had the same table and the same partner, and are not independent."""
    groups: dict[tuple[int, str], list[Episode]] = {}
    for episode in episodes:
        groups.setdefault((episode.step, episode.task_id), []).append(episode)
    return list(groups.values())


def by_role(group: Sequence[Episode]) -> list[list[Episode]]:
    """The episodes of each role."""
    roles = dict.fromkeys(episode.role for episode in group)
    return [[episode for episode in group if episode.role == role] for role in roles]


def group_means(episodes: Sequence[Episode], measure: str) -> list[float]:
    """The mean of a measure in each group that has it."""
    return [fmean(values) for group in group_by_task(episodes) if (values := values_of(group, measure))]


def with_proposal(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes with a proposal."""
    return [episode for episode in episodes if "before" in episode.values]


def count_questions_before_proposal(replies: Sequence[str]) -> int | None:
    """The number of different questions before the first proposal; None without a proposal."""
    replies = [without_thoughts(reply) for reply in replies]
    first = next((place for place, reply in enumerate(replies) if split_tag(reply)[0] == "propose"), None)
    return None if first is None else count_questions(_message_texts(replies[:first])).distinct


def read_run(log_dir: Path) -> Run:
    """Read the run in a directory. Raises UserError if it has no finished game, or files of another kind."""
    if not log_dir.is_dir():
        raise UserError(f"there is no directory {log_dir}. {GIVE_A_RUN}.")
    files = {step: paths[0] for step, paths in RunDir(log_dir).rollout_files().items() if paths[0].suffix == ".jsonl"}
    if not files:
        raise UserError(
            f"{log_dir} has no rollouts/step_*.jsonl. {GIVE_A_RUN}, not a folder of several; those are given one after "
            "the other."
        )
    episodes, failed, others = list[Episode](), list[Rollout](), list[Rollout]()
    for step, path in files.items():
        try:
            for record in read_rollouts(path):
                rollout = record.rollout
                if rollout.failure or not math.isfinite(rollout.reward):
                    failed.append(rollout)
                elif rollout.metrics.keys() >= GAME_METRICS:
                    episodes.append(_episode(step, rollout))
                else:
                    others.append(rollout)
        # Other programs write a step_000001.jsonl too, whose lines lack anything.
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError) as error:
            raise UserError(
                f"{path} does not hold rollouts as `rl` records them: {type(error).__name__}: {error}. {GIVE_A_RUN}."
            ) from error
    if not episodes:
        raise UserError(_no_games(log_dir, len(failed), others))
    start = _start(log_dir / "config.toml")
    return Run(log_dir.resolve().name, start, tuple(episodes), len(failed), len(others))


def _start(config: Path) -> str:
    """Describe the first weights of the run, by its settings."""
    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "what it began with is not known: there is no config.toml"
    sections = {name: settings.get(name, {}) for name in ("model", "warmup")}
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise UserError(f"{config} is no config that `rl` wrote: `{name}` is {section!r:.80}. {GIVE_A_RUN}.")
    model = sections["model"].get("name", "a model that its config does not name")
    if num_steps := sections["warmup"].get("max_steps", 0):
        return (
            f"begun after a warm-up of {num_steps} supervised steps on a script's games, which teaches {model} to ask: "
            "its beginning is not that of the base model"
        )
    return f"begun with {model} as it was, without a warm-up of its own"


def _episode(step: int, rollout: Rollout) -> Episode:
    metrics: Mapping[str, Any] = rollout.metrics
    for name in ("questions", "distinct_questions"):
        if not math.isfinite(metrics[name]):
            raise ValueError(f"its metric `{name}` is {metrics[name]}")
    replies = [message["content"] for message in rollout.messages if message["role"] == "assistant"]
    counts = count_questions(_message_texts([without_thoughts(reply) for reply in replies]))
    before = count_questions_before_proposal(replies)
    values = {
        **({} if before is None else {"before": before}),
        "proposed": float(before is not None),
        "distinct": metrics["distinct_questions"],
        "questions": metrics["questions"],
        "marks": counts.question_marks,
        "words": counts.words,
        "score_seeking": counts.score_seeking,
        "turns": len(replies),
        "reward": rollout.reward,
    }
    return Episode(step, rollout.task_id, rollout.role, values)


def _message_texts(replies: Sequence[str]) -> list[str]:
    return [text for kind, text in map(split_tag, replies) if kind == "message"]


def _no_games(log_dir: Path, num_failed: int, others: Sequence[Rollout]) -> str:
    if others:
        metrics = ", ".join(sorted(others[0].metrics)) or "none"
        return (
            f"{log_dir} has {len(others)} rollouts, none of which is of `matching-game`: the first is of the task "
            f"`{others[0].task_id}` with the metrics {metrics}. Give `--log_dir` a run of that environment."
        )
    if num_failed:
        return f"{log_dir} has no finished game: all of its {num_failed} rollouts failed; see their `failure_detail`."
    return f"{log_dir} has no game yet: its rollouts/step_*.jsonl are empty."
