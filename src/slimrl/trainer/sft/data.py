"""Loads conversations for training and validation, from a JSONL or parquet file or a Hub data set.

A rollout that slimrl recorded (`rollouts/step_000040.jsonl`) is a valid row, so supervised training can use recorded
episodes. Failed and truncated rollouts are skipped. To train on good rollouts only, remove the others from the file.
`trainer/sft/rows.py` describes the content of a row.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from slimrl.config.data import FileDataConfig, HubDataConfig
from slimrl.errors import UserError
from slimrl.io.rows import file_rows, hash_fraction, hub_rows
from slimrl.trainer.sft.columns import without_padding
from slimrl.trainer.sft.rows import Conversation, listed, read_row


def load_conversations(
    config: FileDataConfig | HubDataConfig, note: Callable[[str], None]
) -> tuple[list[Conversation], list[Conversation]]:
    """Return the training data and the validation data. Raises UserError with the place of the first bad row."""
    conversations = _read(config, _training_part(config), note)
    if apart := config.val_path if isinstance(config, FileDataConfig) else config.val_split:
        return conversations, _read(config, apart, note)
    # Split by a hash of the conversation. So a row stays in training or validation when rows are added to the file.
    parts: dict[bool, list[Conversation]] = {True: [], False: []}
    for one in conversations:
        content: Any = one.messages
        parts[hash_fraction(content) < config.val_fraction].append(one)
    if not all(parts.values()):
        raise UserError(
            f"{_name(config, _training_part(config))}: {len(conversations)} conversations leave {len(parts[False])} to "
            f"train and {len(parts[True])} to validate at `data.val_fraction` = {config.val_fraction:g}; change it, or "
            "name data of its own to validate on."
        )
    return parts[False], parts[True]


def _training_part(config: FileDataConfig | HubDataConfig) -> str:
    return config.path if isinstance(config, FileDataConfig) else config.split


def _name(config: FileDataConfig | HubDataConfig, part: str) -> str:
    return part if isinstance(config, FileDataConfig) else f"{config.name} ({part})"


def _rows(config: FileDataConfig | HubDataConfig, part: str) -> Iterator[tuple[Any, str]]:
    """Return the rows of a file or of a data set's split, each with its place for messages (file and line)."""
    if isinstance(config, FileDataConfig):
        rows, is_columnar = file_rows(Path(part), "`data.path` and `data.val_path`"), Path(part).suffix == ".parquet"
    else:
        check = "`data.name`, `data.subset`, `data.split` and `data.val_split`"
        rows, is_columnar = hub_rows(config.name, part, check, config.subset), True
    return ((without_padding(row, is_columnar), where) for row, where in rows)


def _read(config: FileDataConfig | HubDataConfig, part: str, note: Callable[[str], None]) -> list[Conversation]:
    source = _name(config, part)
    read, passed_over = list[Conversation](), 0
    for row, where in _rows(config, part):
        if _is_broken(row):
            passed_over += 1
            continue
        read.append(read_row(row, where))
    if not read:
        why = f", but for {passed_over} rollouts that failed or were cut off" if passed_over else ""
        raise UserError(f"{source} has no rows to learn from{why}.")
    if unread := dict.fromkeys(key for one in read for key in one.unread):
        note(f"{source}: nothing is learnt from these keys: {listed(unread)}")
    if passed_over:
        note(f"{source}: passed over {passed_over} rollouts that failed or were cut off")
    return read


def _is_broken(row: Any) -> bool:
    """Return True if a row is a recorded rollout that failed or was cut off by `max_tokens` or `seq_len`. A model that
    trains on it would learn to stop at the cut."""
    if not isinstance(row, dict):
        return False
    metrics = row.get("metrics")
    return bool(row.get("failure")) or (isinstance(metrics, Mapping) and bool(metrics.get("truncated")))
