"""The top level of `slimrl check`, which tests an environment."""

from typing import ClassVar, Literal

from pydantic import Field

from slimrl.config.base import CommandConfig, Config
from slimrl.config.rollout import EnvConfig


class TemplateConfig(Config):
    """The model whose chat template writes the conversations. Its weights are not loaded."""

    name: str = ""
    """A model as in `rl`, to test its template and tokenizer too. If empty, use ChatML, which needs no model."""


class CheckConfig(CommandConfig):
    """Test an environment before training. Inspect its tasks. Play its scripts, and replies that are empty, nonsense or
    copied prompts, to check the rewards. Repeat episodes, beside other episodes and in another process, to check that
    they are reproducible. The exit status is 1 if a problem was found. `--json` prints the findings as JSON."""

    command: ClassVar[str] = "check"
    operand: ClassVar[str] = "env.0.id"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl check reverse-text",
        "slimrl check market.py:Market --args.highest 50",
        "slimrl check wiki-search --args.num_pages 100 --args.num_train 50 --args.format native",
        """slimrl check --env '[{id="wordle"},{id="market.py:Market"}]' --json""",
        "slimrl check market.py:Market --model.name Qwen/Qwen3-0.6B",
    )
    first: ClassVar[tuple[str, ...]] = ("env", "split", "num_examples", "max_turns", "episode_timeout_s")

    env: list[EnvConfig] = Field(min_length=1)
    """The environments to test, one after the other. The first word without a flag is one, and `--args.KEY` its
    arguments."""

    split: Literal["train", "validation", "test"] = "train"
    """The split of the tasks for episodes. The tasks of all splits are inspected."""

    num_examples: int = Field(default=20, ge=1)
    """Number of tasks that every script plays. Nonsense is tried on two of them."""

    max_turns: int = Field(default=40, ge=1)
    """Maximum number of turns per episode; the expert must be done by then."""

    episode_timeout_s: float = Field(default=30.0, gt=0)
    """Maximum wait for the environment's answer, in seconds."""

    seed: int = Field(default=0, ge=0)
    """The random seed of scripts that play at random."""

    model: TemplateConfig = TemplateConfig()
