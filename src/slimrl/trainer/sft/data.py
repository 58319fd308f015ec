"""Conversations to train on and to validate on, from a JSONL or parquet file or a Hub data set with `messages`.

A rollout that slimrl recorded (`rollouts/step_000040.jsonl`) is such a row, so a run's own episodes can be trained on.
Rollouts that failed or were cut off are skipped. To train on good rollouts alone, remove the others from the file. What
may be in a row is in `trainer/sft/rows.py`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.config.data import FileDataConfig, HubDataConfig
from slimrl.errors import UserError
from slimrl.io.rows import file_rows, hub_rows
from slimrl.trainer.sft.rows import read_messages, unread_keys
from slimrl.types import Message


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, the last of which is the assistant's; `where` names the file and the line they were read from."""

    messages: list[Message]
    where: str


def load_conversations(
    config: FileDataConfig | HubDataConfig, note: Callable[[str], None]
) -> tuple[list[Conversation], list[Conversation]]:
    """The conversations for training and those for validation. Raises UserError naming the first bad row."""
    if isinstance(config, FileDataConfig):
        part, apart = config.path, config.val_path
    else:
        part, apart = config.split, config.val_split
    name, conversations = _load(config, part, note)
    if apart:
        return conversations, _load(config, apart, note)[1]
    # By a hash of the conversation, so that a row stays on its side when others are added to the file.
    held_out = [_fraction(conversation.messages) < config.val_fraction for conversation in conversations]
    train = [c for c, out in zip(conversations, held_out, strict=True) if not out]
    validation = [c for c, out in zip(conversations, held_out, strict=True) if out]
    if not train or not validation:
        raise UserError(
            f"{name}: {len(conversations)} conversations leave {len(train)} to train and {len(validation)} to validate "
            f"at `data.val_fraction` = {config.val_fraction:g}; change it, or name data of its own to validate on."
        )
    return train, validation


def _load(
    config: FileDataConfig | HubDataConfig, part: str, note: Callable[[str], None]
) -> tuple[str, list[Conversation]]:
    """The name of a file or of a data set's split, and its conversations."""
    if isinstance(config, FileDataConfig):
        return part, _from_rows(file_rows(Path(part), "`data.path` and `data.val_path`"), part, note)
    check = "`data.name`, `data.subset`, `data.split` and `data.val_split`"
    source = f"{config.name} ({part})"
    return source, _from_rows(hub_rows(config.name, part, check, config.subset), source, note)


def _from_rows(rows: Iterable[tuple[Any, str]], source: str, note: Callable[[str], None]) -> list[Conversation]:
    conversations, passed_over = list[Conversation](), 0
    unread = dict[str, None]()  # in the order in which they are found
    for row, where in rows:
        if _is_broken(row):
            passed_over += 1
            continue
        conversations.append(Conversation(read_messages(row, where), where))
        unread |= dict.fromkeys(unread_keys(row))
    if not conversations:
        raise UserError(f"{source} has no conversations, but for {passed_over} rollouts that failed or were cut off.")
    if passed_over:
        note(f"{source}: passed over {passed_over} rollouts that failed or were cut off")
    if unread:
        note(f"{source}: nothing is learnt from these keys: {', '.join(f'`{key}`' for key in unread)}")
    return conversations


def _is_broken(row: Any) -> bool:
    """Whether a row is a recorded rollout that failed, or that `max_tokens` or `seq_len` cut off. A model trained on it
    would learn to stop there."""
    if not isinstance(row, dict):
        return False
    metrics = row.get("metrics")
    return bool(row.get("failure")) or (isinstance(metrics, Mapping) and bool(metrics.get("truncated")))


def _fraction(conversation: Sequence[Message]) -> float:
    """A number in [0, 1) that depends on the conversation alone."""
    digest = hashlib.sha256(json.dumps(conversation, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
