"""The recorded games of a run, as one row of numbers each. The module knows nothing of plots or comparisons."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from slimrl.errors import UserError
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.monitor.rollouts import read_rollouts
from slimrl.types import Rollout
from slimrl_envs.matching_game.rules.protocol import split_tag
from slimrl_envs.matching_game.rules.questions import count_questions

GAME_METRICS = frozenset(
    {"agreed", "distinct_questions", "messages", "own_view", "questions"}
)  # which no other environment has together
STEP_FILE = re.compile(r"step_(\d+)\.jsonl")
SHARE = 5  # a run's beginning is the first fifth of its steps, its end the last


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished game of the policy.

    `before` counts the different questions before its first proposal. Losing cannot cause these, as it causes later
    ones: after a rejection a shy partner wants to be asked again. It is None without a proposal, because then all
    questions would count, and a policy that learns to propose would seem to ask less. `distinct` and `questions` are
    the environment's own counts over legal messages; `question_marks`, `words` and `score_seeking` what
    `rules/questions.py` finds in everything that was meant as a message.
    """

    step: int
    task_id: str
    role: str
    """Empty but for a policy that plays itself."""
    reward: float
    turns: float
    before: float | None
    distinct: float
    questions: float
    question_marks: float
    words: float
    score_seeking: float


MEASURES = ("before", "proposed", "distinct", "questions", "marks", "words", "score_seeking", "turns", "reward")


@dataclass(frozen=True, slots=True)
class Run:
    """The games of a run, and how many of its rollouts were left out: failed ones, and those of other environments."""

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
    """One of `MEASURES` of each episode; `before` of those that have it."""
    match measure:
        case "before":
            return [episode.before for episode in episodes if episode.before is not None]
        case "proposed":
            return [float(episode.before is not None) for episode in episodes]
        case "distinct":
            return [episode.distinct for episode in episodes]
        case "questions":
            return [episode.questions for episode in episodes]
        case "marks":
            return [episode.question_marks for episode in episodes]
        case "words":
            return [episode.words for episode in episodes]
        case "score_seeking":
            return [episode.score_seeking for episode in episodes]
        case "turns":
            return [episode.turns for episode in episodes]
        case "reward":
            return [episode.reward for episode in episodes]
    raise ValueError(f"there is no measure {measure}")


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
    """The episodes in which a proposal was made."""
    return [episode for episode in episodes if episode.before is not None]


def count_questions_before_proposal(replies: Sequence[str]) -> int | None:
    """The number of different questions before the first proposal; None without a proposal."""
    replies = [without_thoughts(reply) for reply in replies]
    first = next((place for place, reply in enumerate(replies) if split_tag(reply)[0] == "propose"), None)
    return None if first is None else count_questions(_message_texts(replies[:first])).distinct


def read_run(log_dir: Path) -> Run:
    """The run in a directory. Raises UserError if there is none, no finished game in it, or something else."""
    if not log_dir.is_dir():
        raise UserError(f"there is no directory {log_dir}. Give `--log_dir` the output_dir of a run.")
    recorded = (log_dir / "rollouts").glob("*")
    files: dict[int, Path] = {}
    for path in recorded:
        if match := STEP_FILE.fullmatch(path.name):
            if (step := int(match[1])) in files:
                raise UserError(
                    f"{path} and {files[step].name} are of the same step. Remove the one that is no part of it."
                )
            files[step] = path
    if not files:
        raise UserError(
            f"{log_dir} has no rollouts/step_*.jsonl. Give `--log_dir` the output_dir of a run of `rl`, not a folder "
            "of several; those are given one after the other."
        )
    rollouts = [(step, rollout) for step in sorted(files) for rollout in _rollouts(files[step])]
    finished = [(step, rollout) for step, rollout in rollouts if not rollout.failure and math.isfinite(rollout.reward)]
    games = [(step, rollout) for step, rollout in finished if rollout.metrics.keys() >= GAME_METRICS]
    num_failed, num_others = len(rollouts) - len(finished), len(finished) - len(games)
    if not games:
        raise UserError(_no_games(log_dir, num_failed, [rollout for _, rollout in finished]))
    name, start = log_dir.resolve().name, _start(log_dir / "config.toml")
    return Run(name, start, tuple(_episodes(games, files)), num_failed, num_others)


def _rollouts(path: Path) -> list[Rollout]:
    with _name_file_on_error(path):
        return [record.rollout for record in read_rollouts(path)]


def _episodes(games: Sequence[tuple[int, Rollout]], files: Mapping[int, Path]) -> Iterator[Episode]:
    for step, rollout in games:
        with _name_file_on_error(files[step]):
            yield _episode(step, rollout)


@contextmanager
def _name_file_on_error(path: Path) -> Iterator[None]:
    """Name the file in the error, whatever its lines lack: other programs write a step_1.jsonl too."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError) as error:
        raise UserError(
            f"{path} does not hold rollouts as `rl` records them: {type(error).__name__}: {error}. Give `--log_dir` "
            "the output_dir of a run of `rl`."
        ) from error


def _start(config: Path) -> str:
    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "what it began with is not known: there is no config.toml"
    model = _section(settings, "model", config).get("name", "a model that its config does not name")
    num_steps = _section(settings, "warmup", config).get("max_steps", 0)
    if not num_steps:
        return f"begun with {model} as it was, without a warm-up of its own"
    return (
        f"begun after a warm-up of {num_steps} supervised steps on a script's games, which teaches {model} to ask: its "
        "beginning is not that of the base model"
    )


def _section(settings: Mapping[str, Any], name: str, config: Path) -> Mapping[str, Any]:
    section = settings.get(name, {})
    if not isinstance(section, dict):
        raise UserError(
            f"{config} is no config that `rl` wrote: `{name}` is {section!r:.80}, and not a section. Give `--log_dir` "
            "the output_dir of a run of `rl`."
        )
    return section


def _episode(step: int, rollout: Rollout) -> Episode:
    for name in ("questions", "distinct_questions"):
        if not math.isfinite(rollout.metrics[name]):
            raise ValueError(f"its metric `{name}` is {rollout.metrics[name]}")
    replies = [message["content"] for message in rollout.messages if message["role"] == "assistant"]
    counts = count_questions(_message_texts([without_thoughts(reply) for reply in replies]))
    return Episode(
        step=step,
        task_id=rollout.task_id,
        role=rollout.role,
        reward=rollout.reward,
        turns=len(replies),
        before=count_questions_before_proposal(replies),
        distinct=rollout.metrics["distinct_questions"],
        questions=rollout.metrics["questions"],
        question_marks=counts.question_marks,
        words=counts.words,
        score_seeking=counts.score_seeking,
    )


def _message_texts(replies: Sequence[str]) -> list[str]:
    return [text for kind, text in map(split_tag, replies) if kind == "message"]


def _no_games(log_dir: Path, num_failed: int, others: Sequence[Rollout]) -> str:
    if not others and not num_failed:
        return f"{log_dir} has no game yet: its rollouts/step_*.jsonl are empty."
    if not others:
        return f"{log_dir} has no finished game: all of its {num_failed} rollouts failed; see their `failure_detail`."
    metrics = ", ".join(sorted(others[0].metrics)) or "none"
    return (
        f"{log_dir} has {len(others)} rollouts, none of which is of `matching-game`: the first is of the task "
        f"`{others[0].task_id}` with the metrics {metrics}. Give `--log_dir` a run of that environment."
    )
