"""Conversations from a JSONL or parquet file or a Hub data set: rows with `messages`, in training and validation.

A rollout that slimrl recorded (`rollouts/step_000040.jsonl`) is such a row, so a run's own episodes can be trained on.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from slimrl.config.run import FileDataConfig, HubDataConfig
from slimrl.errors import UserError
from slimrl.types import Message

ROLES = ("system", "user", "assistant", "tool")


def load_conversations(config: FileDataConfig | HubDataConfig) -> tuple[list[list[Message]], list[list[Message]]]:
    """(training, validation) conversations. Raises UserError naming the first bad row and where it stands."""
    if isinstance(config, HubDataConfig):
        name, conversations = f"{config.name} ({config.split})", _from_hub(config.name, config.split)
        if config.val_split:
            return conversations, _from_hub(config.name, config.val_split)
    else:
        name, conversations = config.path, _from_file(Path(config.path))
        if config.val_path:
            return conversations, _from_file(Path(config.val_path))
    held_out = [_fraction(conversation) < config.val_fraction for conversation in conversations]
    train = [c for c, out in zip(conversations, held_out, strict=True) if not out]
    validation = [c for c, out in zip(conversations, held_out, strict=True) if out]
    if not train or not validation:
        raise UserError(
            f"{name}: {len(conversations)} conversations leave {len(train)} to train and {len(validation)} to validate "
            f"at `data.val_fraction` = {config.val_fraction:g}; change it, or name data of its own to validate on."
        )
    return train, validation


def _from_file(path: Path) -> list[list[Message]]:
    if path.suffix == ".parquet":
        if not path.is_file():
            raise UserError(f"cannot read {path}: no such file; check `data.path` and `data.val_path`.")
        return _from_rows(_datasets().Dataset.from_parquet(str(path)), str(path))
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # and not at what else Unicode calls a line break
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check `data.path` and `data.val_path`.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}); it must be JSONL, or be called .parquet.") from error
    return _from_rows((_parsed(line) for line in lines), str(path))


def _from_hub(name: str, split: str) -> list[list[Message]]:
    """A split of a data set on the Hub, or of one in a local directory; downloads are cached and resumed."""
    datasets = _datasets()
    try:
        rows = datasets.load_dataset(name, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"cannot load the split `{split}` of {name}: {type(error).__name__}: {error}. Check `data.name`, "
            "`data.split` and `data.val_split`; a private data set needs `hf auth login`, and HF_HUB_OFFLINE=1 allows "
            "only what is in the cache."
        ) from error
    return _from_rows(rows, f"{name} ({split})")


def _datasets() -> Any:
    """The module `datasets`."""
    try:
        import datasets  # an extra, and slow to import: only here
    except ImportError as error:
        raise UserError(
            f"parquet files and Hub data sets need the extra [data]: `uv sync --extra data` ({error}). JSONL files "
            "work without it."
        ) from error
    return datasets


def _parsed(line: str) -> Any:
    """A line of JSON; a line that is none comes back as text, which no conversation is."""
    try:
        return json.loads(line) if line.strip() else None
    except ValueError:
        return line


def _from_rows(rows: Iterable[Any], source: str) -> list[list[Message]]:
    conversations = [_conversation(row, f"{source}:{number}") for number, row in enumerate(rows, 1) if row is not None]
    if not conversations:
        raise UserError(f"{source} has no conversations.")
    return conversations


def _conversation(row: Any, where: str) -> list[Message]:
    try:
        messages = list(row["messages"])
        good = all(m["role"] in ROLES and isinstance(m["content"], str) for m in messages)
    except (KeyError, TypeError):
        good, messages = False, []
    if not good:
        raise UserError(
            f'{where}: expected {{"messages": [{{"role": ..., "content": ...}}, ...]}} with roles {", ".join(ROLES)} '
            f"and text contents, found: {row if isinstance(row, str) else json.dumps(row, default=str):.120}"
        )
    roles = [message["role"] for message in messages]
    if roles[:1] == ["assistant"] or roles[-1:] != ["assistant"]:
        raise UserError(
            f"{where}: a conversation to learn from begins with a system or user message and ends with an assistant "
            f"message; this one has the roles: {', '.join(roles) or 'none'}."
        )
    return messages


def _fraction(conversation: Sequence[Message]) -> float:
    """A number in [0, 1) that depends on the conversation alone."""
    digest = hashlib.sha256(json.dumps(conversation, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
