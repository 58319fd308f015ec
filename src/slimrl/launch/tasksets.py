"""The tasksets of a command, made from its settings. Needs no PyTorch: `--dry-run` checks them, too."""

from collections.abc import Sequence

from slimrl.config.base import CommandConfig
from slimrl.config.data import ExpertDataConfig
from slimrl.config.play import PlayConfig
from slimrl.config.rollout import EnvConfig
from slimrl.config.run import EvalRunConfig, RLConfig, SFTConfig
from slimrl.config.teacher import TeacherConfig
from slimrl.environments.base import Preparing, Taskset
from slimrl.environments.find import find_constructor, load_taskset


def load_tasksets(envs: Sequence[EnvConfig]) -> list[Taskset]:
    """The tasksets of the environments, in their order, ready to give tasks."""
    tasksets = [load_taskset(env.id, env.args) for env in envs]
    for taskset in tasksets:
        if isinstance(taskset, Preparing):
            taskset.prepare()
    return tasksets


def check_environments(config: CommandConfig, make: bool) -> None:
    """Raises UserError if an environment of the settings does not exist, or does not take its `args`. With `make` it is
    also made, which checks the values of its `args`."""
    for env in _environments(config):
        find = load_taskset if make else find_constructor
        find(env.id, env.args)


def _environments(config: CommandConfig) -> Sequence[EnvConfig]:
    match config:
        case RLConfig(teacher=TeacherConfig(env_args=more)):
            envs = config.orchestrator.env
            return [*envs, *(env.model_copy(update={"args": {**env.args, **more}}) for env in envs)]
        case RLConfig():
            return config.orchestrator.env
        case EvalRunConfig():
            return config.env
        case SFTConfig(data=ExpertDataConfig(env=env)):
            return [env]
        case PlayConfig():
            return [EnvConfig(id=config.id, args=config.args)]
        case _:
            return []
