"""Conversations or texts to train on and to validate on, from a JSONL or parquet file or a Hub data set.

A rollout that slimrl recorded (`rollouts/step_000040.jsonl`) is a valid row, so supervised training can use recorded
episodes. Failed and truncated rollouts are skipped. To train on good rollouts only, remove the others from the file.
`trainer/sft/rows.py` describes the content of a row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from slimrl.config.data import FileDataConfig, HubDataConfig
from slimrl.errors import UserError
from slimrl.io.rows import file_rows, hash_fraction, hub_rows
from slimrl.trainer.sft.columns import without_padding
from slimrl.trainer.sft.rows import Conversation, PlainText, RowReader


def load_conversations(
    config: FileDataConfig | HubDataConfig, note: Callable[[str], None]
) -> tuple[list[Conversation | PlainText], list[Conversation | PlainText]]:
    """Return the data to train on and to validate on. Raises UserError naming the first bad row."""
    if isinstance(config, FileDataConfig):
        part, apart = config.path, config.val_path
    else:
        part, apart = config.split, config.val_split
    name, conversations = _load(config, part, note)
    if apart:
        return conversations, _load(config, apart, note)[1]
    # Split by a hash of the conversation, so that a row stays in its part when more rows are added to the file.
    held_out = [_fraction(conversation) < config.val_fraction for conversation in conversations]
    train = [c for c, out in zip(conversations, held_out, strict=True) if not out]
    validation = [c for c, out in zip(conversations, held_out, strict=True) if out]
    if not train or not validation:
        raise UserError(
            f"{name}: {len(conversations)} conversations leave {len(train)} to train and {len(validation)} to validate "
            f"at `data.val_fraction` = {config.val_fraction:g}; change it, or name data of its own to validate on."
        )
    return train, validation


def first_rows(
    config: FileDataConfig | HubDataConfig, num: int, note: Callable[[str], None]
) -> list[Conversation | PlainText]:
    """Return the training targets of the first `num` training rows. Raises UserError naming the first bad row."""
    part = config.path if isinstance(config, FileDataConfig) else config.split
    name, rows = _open(config, part)
    return _from_rows(rows, name, config, note, num)


def _load(
    config: FileDataConfig | HubDataConfig, part: str, note: Callable[[str], None]
) -> tuple[str, list[Conversation | PlainText]]:
    """Return the name of a file or of a data set's split, and the training targets of its rows."""
    name, rows = _open(config, part)
    return name, _from_rows(rows, name, config, note)


def _open(config: FileDataConfig | HubDataConfig, part: str) -> tuple[str, Iterator[tuple[Any, str]]]:
    """Return the name of a file or of a data set's split, and its rows."""
    if isinstance(config, FileDataConfig):
        rows, name = file_rows(Path(part), "`data.path` and `data.val_path`"), part
        is_columnar = Path(part).suffix == ".parquet"
    else:
        check = "`data.name`, `data.subset`, `data.split` and `data.val_split`"
        rows, name = hub_rows(config.name, part, check, config.subset), f"{config.name} ({part})"
        is_columnar = True
    return name, ((without_padding(row, is_columnar), where) for row, where in rows)


def _from_rows(
    rows: Iterable[tuple[Any, str]],
    source: str,
    config: FileDataConfig | HubDataConfig,
    note: Callable[[str], None],
    num: int | None = None,
) -> list[Conversation | PlainText]:
    """Return the training targets of the rows, at most `num`."""
    reader, read, passed_over, bad = RowReader(config.form), list[Conversation | PlainText](), 0, list[str]()
    for row, where in rows:
        if len(read) == num:
            break
        if _is_broken(row):
            passed_over += 1
            continue
        try:
            read.append(reader.read(row, where))
        except UserError as error:
            if not config.skip_bad_rows:
                raise
            bad.append(str(error))
    notes = [f"{source}: {text}" for text in reader.notes]
    if passed_over:
        notes.append(f"{source}: passed over {passed_over} rollouts that failed or were cut off")
    if bad:
        notes.append(f"{source}: left out {len(bad)} rows that cannot be learnt from; the first is {bad[0]}")
    if not read:
        why = f", but for {passed_over} rollouts that failed or were cut off" if passed_over else ""
        raise UserError(f"{source} has no rows to learn from{why}.{''.join(f' {text}' for text in bad[:1])}")
    for text in notes:
        note(text)
    return read


def _is_broken(row: Any) -> bool:
    """Return True if a row is a recorded rollout that failed, or that `max_tokens` or `seq_len` cut off. A model
    trained on it would learn to stop there."""
    if not isinstance(row, dict):
        return False
    metrics = row.get("metrics")
    return bool(row.get("failure")) or (isinstance(metrics, Mapping) and bool(metrics.get("truncated")))


def _fraction(read: Conversation | PlainText) -> float:
    """Return a number in [0, 1) that depends on the conversation or text alone."""
    content: Any = read.messages if isinstance(read, Conversation) else [read.prompt, read.completion]
    return hash_fraction(content)
