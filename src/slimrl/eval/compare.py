"""Compares two policies task by task. The paired difference is less uncertain than the two means.

slimrl compare outputs/eval-a outputs/eval-b
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slimrl.errors import UserError
from slimrl.eval.episodes import read_episodes
from slimrl.eval.evaluate import env_of, scores_of
from slimrl.io.run_dir import RunDir
from slimrl.stats import Estimate, paired_difference, sign_test
from slimrl.types import Rollout

STAGES = ("eval", "final")  # the newest stage of the command `eval`, and of a training run
REWARD = "reward"  # name of the score; for one environment it is `reward, wordle`
Episodes = Mapping[str, Rollout]  # by the tasks' ids within the evaluation


@dataclass(frozen=True, slots=True)
class Pair:
    """The difference between two policies in one score, over the tasks that both policies finished.

    `first` and `second` are the two means, and `difference` is the first minus the second. `wins` counts the tasks on
    which the first policy has the higher score. `p` is the sign test's p-value (McNemar's for scores of 0 and 1).
    """

    score: str
    first: float
    second: float
    difference: Estimate
    wins: int
    losses: int
    p: float


def compare(first: Episodes, second: Episodes) -> list[Pair]:
    """Return the differences in the reward and in every score that both policies report. With several environments,
    there is also a difference for the reward in each environment. Raise UserError if the policies finished no task in
    common, or if tasks with the same id differ."""
    shared = [task_id for task_id in first if task_id in second]
    both = common_tasks(first, second)
    if not both:
        raise UserError(
            f"nothing can be compared: of {len(first)} and {len(second)} episodes, {len(shared)} are of the same "
            "tasks, and in none of these did both finish. Evaluate both on the same environment and `split`."
        )
    # Ids such as `wordle/test/0` are the same for every `args`, so the tasks themselves are compared too.
    for task_id in both:
        _check_same(first[task_id], second[task_id])
    groups = {REWARD: both}
    if len(envs := dict.fromkeys(map(env_of, both))) > 1:
        groups |= {f"{REWARD}, {env}": [task_id for task_id in both if env_of(task_id) == env] for env in envs}
    pairs = [_pair(name, [(first[one].reward, second[one].reward) for one in ids]) for name, ids in groups.items()]
    scores = [(scores_of([first[task_id]]), scores_of([second[task_id]])) for task_id in both]
    for name in sorted({name for one, other in scores for name in one.keys() & other.keys()}):
        pairs.append(
            _pair(name, [(one[name][0], other[name][0]) for one, other in scores if name in one and name in other])
        )
    return pairs


def common_tasks(first: Episodes, second: Episodes) -> list[str]:
    """Return the ids of the tasks on which neither policy's episode failed."""
    return [p for p in first if p in second and not first[p].failure and not second[p].failure]


def find_saved_modes(directory: Path) -> dict[str, Path]:
    """Return the files of episodes of a run or an evaluation by decoding mode, of the newest stage. Raise UserError if
    there are no such files."""
    for stage in STAGES:
        files = sorted(RunDir(directory).held_out.glob(f"{stage}_*.jsonl"))
        if files:
            return {file.stem.removeprefix(f"{stage}_"): file for file in files}
    raise UserError(
        f"{directory} has no saved evaluation. Give two `output_dir`s of `slimrl eval` or of a finished `slimrl "
        "rl`, or two of the files in their `held_out/`."
    )


def compare_saved(first: Path, second: Path) -> Iterator[tuple[str, list[Pair]]]:
    """Yield each decoding mode that both evaluations have, with the comparison. If both paths are files, compare the
    two files even if their modes differ."""
    if first.is_file() and second.is_file():
        yield f"{first.stem}, {second.stem}", compare(read_episodes(first), read_episodes(second))
        return
    files, others = find_saved_modes(first), find_saved_modes(second)
    modes = [mode for mode in files if mode in others]
    if not modes:
        raise UserError(
            f"{first} was decoded {' and '.join(files)}, {second} {' and '.join(others)}: name two files to compare "
            "different ways of decoding."
        )
    for mode in modes:
        yield mode, compare(read_episodes(files[mode]), read_episodes(others[mode]))


def _pair(score: str, both: Sequence[tuple[float, float]]) -> Pair:
    values, others = ([*column] for column in zip(*both, strict=True))
    return Pair(
        score=score,
        first=sum(values) / len(values),
        second=sum(others) / len(others),
        difference=paired_difference(values, others),
        wins=sum(value > other for value, other in both),
        losses=sum(value < other for value, other in both),
        p=sign_test(values, others),
    )


def _check_same(first: Rollout, second: Rollout) -> None:
    # The instructions may differ, for example between two formats of tool calls, so compare the questions.
    asked, other = (
        next((message["content"] for message in rollout.messages if message["role"] == "user"), "")
        for rollout in (first, second)
    )
    if asked != other:
        raise UserError(
            f"the two evaluations are of different tasks: {first.task_id} is {asked!r:.120} in one and "
            f"{other!r:.120} in the other. Give the environment the same `args` in both."
        )
