"""The top level of `slimrl play`: a person plays an environment in the terminal."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from slimrl.config.base import CommandConfig
from slimrl.config.rollout import Worker


class PlayConfig(CommandConfig):
    """Play an environment yourself, in the terminal, instead of the policy: read its prompts, type its replies, and see
    the reward. During the game, `/help` lists the commands, and `/expert` shows how a scripted expert plays."""

    command: ClassVar[str] = "play"
    operand: ClassVar[str] = "id"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl play reverse-text",
        "slimrl play reverse-text --args.style word --split test --task 3",
        "slimrl play wiki-search --args.num_pages 100 --args.num_train 50",
        "slimrl play matching-game --args.n 3 --args.role 2",
    )

    id: str = Field(min_length=1)
    """The environment, also as the first word without a flag: a built-in one, or one of your own as
    `path/to/file.py:ClassName` or `package.module:ClassName`."""

    args: dict[str, Any] = Field(default={})
    """Keyword arguments for the environment's constructor, one by one as in `--args.n 3`; its own documentation names
    them."""

    worker: Worker = "auto"
    """Where its code runs, as in `[[orchestrator.env]]`: `process`, `none`, or `auto`."""

    split: Literal["train", "validation", "test"] = "train"
    """The split of the tasks. Tasks of `test` that you have seen can bias your later judgement of a run."""

    task: str = ""
    """The first task: its id, or its number in the split, from 0. If empty, take the first in the order of `seed`."""

    seed: int = Field(default=0, ge=0)
    """Sets the order of the tasks."""

    episode_timeout_s: float = Field(default=300.0, gt=0)
    """Maximum wait for the environment's answer, in seconds. You have no limit."""
