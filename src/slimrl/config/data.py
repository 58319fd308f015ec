"""The section `data` of the commands `sft` and `trainer`: where the samples come from."""

from typing import Literal

from pydantic import Field

from slimrl.config.base import Config
from slimrl.config.rollout import EnvConfig


class ExpertDataConfig(Config):
    """Conversations of an environment's scripted expert; validation uses the held-out tasks."""

    type: Literal["expert"] = "expert"
    """Demonstrations made on the fly."""

    env: EnvConfig
    """The environment to demonstrate; it must have an expert."""


class FileDataConfig(Config):
    """Conversations in a JSONL file, one object a line: `{"messages": [{"role": ..., "content": ...}, ...]}`, or in a
    `.parquet` file with such rows, which needs the extra `[data]`. The rollouts that a run records are such rows too;
    those that failed or were cut off are left out."""

    type: Literal["file"] = "file"
    """Conversations from disk."""

    path: str = Field(min_length=1)
    """The file to train on."""

    val_path: str = ""
    """A second file to validate on; empty holds out `val_fraction` of the first one instead."""

    val_fraction: float = Field(default=0.05, gt=0, lt=1)
    """Share of `path` held out for validation, chosen by a hash of each conversation so that it never changes."""


class HubDataConfig(Config):
    """Conversations in a data set of the Hub, or in a local directory of that form. Needs the extra `[data]`."""

    type: Literal["hub"] = "hub"
    """Conversations from a data set with a column `messages`."""

    name: str = Field(min_length=1)
    """The data set, as `owner/name`, or a directory."""

    subset: str = ""
    """One of the data set's subsets, which `datasets` calls configurations; empty for the default one."""

    split: str = Field(default="train", min_length=1)
    """The split to train on."""

    val_split: str = ""
    """The split to validate on; empty holds out `val_fraction` of the first one instead."""

    val_fraction: float = Field(default=0.05, gt=0, lt=1)
    """Share of `split` held out for validation, chosen by a hash of each conversation so that it never changes."""


class FakeDataConfig(Config):
    """Random tokens with random rewards: exercises the trainer alone, and teaches the model nothing."""

    type: Literal["fake"] = "fake"
    """The only kind of data that this command has."""

    batch_size: int = Field(default=8, ge=1)
    """Samples in one training step; a multiple of `rollouts_per_example`."""

    rollouts_per_example: int = Field(default=4, ge=1)
    """Samples that share a prompt."""

    prompt_len: int = Field(default=16, ge=1)
    """Tokens of each prompt."""

    completion_len: int = Field(default=16, ge=1)
    """Trained tokens of each sample."""
