"""Makes the tasksets of a command from its settings, in worker processes or in this process. The module does not import
PyTorch, so that `--dry-run` can check tasksets quickly."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from slimrl.config.base import CommandConfig
from slimrl.config.check import CheckConfig
from slimrl.config.data import ExpertDataConfig
from slimrl.config.play import PlayConfig
from slimrl.config.reading.schema import where
from slimrl.config.rollout import EnvConfig
from slimrl.config.run import EvalRunConfig, RLConfig, SFTConfig
from slimrl.config.teacher import TeacherConfig
from slimrl.environments.find import (
    NOTEBOOK,
    check_name,
    find_constructor,
    is_builtin,
    load_taskset,
    prepare_taskset,
    tasks_of,
)
from slimrl.environments.scripts import EXPERT, explain_missing_script
from slimrl.environments.splits import shared_tasks
from slimrl.errors import UserError
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.program import Start
from slimrl.rollout.worker.taskset import load_in_worker, load_in_workers
from slimrl.types import Taskset

TIMEOUT_S = 60.0  # limit of a call to an environment that is used only for demonstrations

# The commands that need an expert, and the alternative if there is none.
INSTEAD = {
    "rl": "leave out the warm-up: `--warmup.max_steps 0`",
    "sft": "train on a file: `--data.type file --data.path chats.jsonl`",
}

# Tasksets in worker processes. The check of the settings makes them, and the run uses the same tasksets.
_made: dict[str, Taskset] = {}


def load_tasksets(envs: Sequence[EnvConfig], timeout_s: float, starts: Sequence[Start] = ()) -> list[Taskset]:
    """Return the prepared tasksets of `envs`, in the same order. `timeout_s` limits each call to an episode in a worker
    process. Each function in `starts` starts one worker for each taskset; by default, there is one worker on this
    machine."""
    tasksets = [_load(env, timeout_s, starts) for env in envs]
    for taskset in tasksets:
        prepare_taskset(taskset)
    return tasksets


def check_environments(config: CommandConfig, make: bool, provenance: Mapping[str, str] | None = None) -> None:
    """Raise UserError if an environment in the settings does not exist, or does not accept its `args`. The message is
    prefixed with the origin of the wrong setting from `provenance` (`config/reading/load.py`). With `make`, or if an
    environment uses a worker process, also make the environment, so that its constructor checks the values of the
    `args`."""
    envs, timeout_s = _environments(config)
    if isinstance(config, RLConfig) and config.deployment.num_workers and not any(map(has_worker, envs)):
        raise UserError(
            f"deployment.num_workers = {config.deployment.num_workers} hosts worker processes of environments, and no "
            'environment has one: set worker = "process" for one, or remove deployment.num_workers.'
        )
    for number, env in enumerate(envs):
        try:
            check_name(env.id)  # before a worker process is started for it
            if make:
                _load(env, timeout_s)
            elif has_worker(env):
                _made[_key(env, timeout_s)] = _load(env, timeout_s)
            else:
                find_constructor(env.id, env.args)
        except UserError as error:
            sections = (f"orchestrator.env.{number}.", f"env.{number}.", "data.env.", "", "teacher.env_")
            keys = (f"{section}{name}" for name in (*args_in(error), "id") for section in sections)
            raise UserError(f"{origin_of(keys, provenance or {})}{error}") from error


def drop_made() -> None:
    """Stop the workers that `check_environments` started, for runs in which other processes play the episodes."""
    _made.clear()  # a deleted taskset stops its processes


def args_in(error: UserError) -> list[str]:
    """Return the arguments that an error message mentions, as keys `args.NAME`."""
    return [f"args.{name}" for name in re.findall(r"[`'](\w+)[`']", str(error))]


def origin_of(keys: Iterable[str], provenance: Mapping[str, str]) -> str:
    """Return a prefix for an error message: the first of the `keys` that was set, with its file and line. Return an
    empty text if this key was set on the command line, or if none of the keys was set."""
    key = next((key for key in keys if key in provenance), "")
    return f"{where((key,), provenance[key])}: " if key and not provenance[key].startswith("--") else ""


def _load(env: EnvConfig, timeout_s: float, starts: Sequence[Start] = ()) -> Taskset:
    if not has_worker(env):
        return load_taskset(env.id, env.args)
    source, key = Source(env.id, env.args, timeout_s), _key(env, timeout_s)
    if starts:
        _made.pop(key, None)  # its process is stopped before others are started
        return load_in_workers(source, starts)
    return _made.pop(key, None) or load_in_worker(source)


def has_worker(env: EnvConfig) -> bool:
    """Return True if an environment's code runs in a worker process. Raises UserError if its settings conflict."""
    is_written_here = env.id.startswith(f"{NOTEBOOK}:")
    if env.worker == "process" and is_written_here:
        raise UserError(
            f"environment `{env.id}` was written in a notebook or a script, where no other process finds it: leave "
            'out worker = "process", or move the class to a file and name it `path/to/file.py:ClassName`.'
        )
    return env.worker == "process" or (env.worker == "auto" and not is_builtin(env.id) and not is_written_here)


def _key(env: EnvConfig, timeout_s: float) -> str:
    return json.dumps([env.id, env.args, timeout_s])


def _environments(config: CommandConfig) -> tuple[Sequence[EnvConfig], float]:
    match config:
        case RLConfig():
            envs = config.orchestrator.env
            return [*envs, *teacher_environments(config)], config.orchestrator.episode_timeout_s
        case EvalRunConfig():
            return config.env, config.episode_timeout_s
        case SFTConfig(data=ExpertDataConfig(env=env)):
            return [env], TIMEOUT_S
        case PlayConfig():
            return [environment_to_play(config)], config.episode_timeout_s
        case CheckConfig():
            return config.env, config.episode_timeout_s
        case _:
            return [], TIMEOUT_S


def teacher_environments(config: RLConfig) -> list[EnvConfig]:
    """Return the student's environments with `teacher.env_args` added to their arguments; empty without them."""
    if not isinstance(config.teacher, TeacherConfig) or not config.teacher.env_args:
        return []
    more = config.teacher.env_args
    return [env.model_copy(update={"args": {**env.args, **more}}) for env in config.orchestrator.env]


def environment_to_play(config: PlayConfig) -> EnvConfig:
    """Return the environment that a human plays with `play`."""
    return EnvConfig(id=config.id, args=config.args, worker=config.worker)


def check_experts(tasksets: Sequence[Taskset], command: str) -> None:
    """Raise UserError if a taskset has no expert. The message suggests how to use `command` without an expert."""
    for taskset in tasksets:
        if EXPERT not in taskset.scripts:
            raise UserError(f"{explain_missing_script(taskset.class_name, EXPERT, {})} Or {INSTEAD[command]}.")


def note_shared_tasks(tasksets: Sequence[Taskset], note: Callable[[str, str], None]) -> None:
    """Log each taskset with held-out tasks that are training tasks, too."""
    for taskset in tasksets:
        if warning := warning_of_shared(taskset):
            note(warning, "yellow")


def warning_of_shared(taskset: Taskset) -> str:
    """Return a warning with the number of held-out tasks that are training tasks, too; empty if the number is 0."""
    held_out = tasks_of(taskset, "test")
    shared = shared_tasks(tasks_of(taskset, "train"), held_out)
    if not shared:
        return ""
    here, there = shared[0]
    return (
        f"{len(shared)} of the {len(held_out)} held-out tasks of {taskset.class_name} are training tasks too "
        f"({here.id} is {there.id}): what is measured on them is memory. Let a hash of the task decide its split, or "
        "keep apart the seeds of a generator that makes task i from seed + i (docs/environments.md)"
    )
