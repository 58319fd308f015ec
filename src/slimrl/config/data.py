"""The section `data` of the commands `sft` and `trainer`: the source of the samples."""

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


class RowsConfig(Config):
    """Settings common to the rows of a file and the rows of a data set."""

    val_fraction: float = Field(default=0.05, gt=0, lt=1)
    """Share of the rows held out for validation if no validation data are named, chosen by a hash of each conversation
    so that it never changes."""


class FileDataConfig(RowsConfig):
    """Conversations in a JSONL file, one object per line: `{"messages": [{"role": ..., "content": ...}, ...]}` or
    `prompt` and `completion` (docs/algorithms/sft.md). A `.parquet` file may have the same rows; it needs the extra
    `[data]`. The recorded rollouts of a run can be used, too; failed or truncated rollouts are left out."""

    type: Literal["file"] = "file"
    """Conversations from disk."""

    path: str = Field(min_length=1)
    """The file to train on."""

    val_path: str = ""
    """A second file to validate on. If empty, hold out `val_fraction` of the first one instead."""


class HubDataConfig(RowsConfig):
    """Conversations in a data set on the Hub, or in a local directory with a data set. Needs the extra `[data]`."""

    type: Literal["hub"] = "hub"
    """Conversations from a data set."""

    name: str = Field(min_length=1)
    """The data set, as `owner/name`, or a directory."""

    subset: str = ""
    """One of the data set's subsets, which `datasets` calls configurations; empty for the default one."""

    split: str = Field(default="train", min_length=1)
    """The split to train on."""

    val_split: str = ""
    """The split to validate on. If empty, hold out `val_fraction` of the first one instead."""


class FakeDataConfig(Config):
    """Random tokens with random rewards: exercises the trainer alone, and teaches the model nothing."""

    type: Literal["fake"] = "fake"
    """The only kind of data for this command."""

    batch_size: int = Field(default=8, ge=1)
    """Samples in one training step; a multiple of `rollouts_per_example`."""

    rollouts_per_example: int = Field(default=4, ge=1)
    """Samples that share a prompt."""

    prompt_len: int = Field(default=16, ge=1)
    """Tokens of each prompt."""

    completion_len: int = Field(default=16, ge=1)
    """Trained tokens of each sample."""
