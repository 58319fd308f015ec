"""Conversations from a JSONL file, one `{"messages": [...]}` a line, split into training and validation by content."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from slimrl.config.run import FileDataConfig
from slimrl.errors import UserError
from slimrl.types import Message

ROLES = ("system", "user", "assistant", "tool")


def load_conversations(config: FileDataConfig) -> tuple[list[list[Message]], list[list[Message]]]:
    """(training, validation) conversations. Raises UserError with the file and line of the first bad one."""
    conversations = _read(Path(config.path))
    if config.val_path:
        return conversations, _read(Path(config.val_path))
    held_out = [_fraction(conversation) < config.val_fraction for conversation in conversations]
    train = [c for c, out in zip(conversations, held_out, strict=True) if not out]
    validation = [c for c, out in zip(conversations, held_out, strict=True) if out]
    if not train or not validation:
        raise UserError(
            f"{config.path}: {len(conversations)} conversations leave {len(train)} to train and {len(validation)} to "
            f"validate at `data.val_fraction` = {config.val_fraction:g}; change it, or name a `data.val_path`."
        )
    return train, validation


def _read(path: Path) -> list[list[Message]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # and not at what else Unicode calls a line break
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check `data.path` and `data.val_path`.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}); it must be JSONL.") from error
    conversations = [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not conversations:
        raise UserError(f"{path} has no conversations.")
    return conversations


def _parse(line: str, where: str) -> list[Message]:
    try:
        messages = json.loads(line)["messages"]
        good = all(m["role"] in ROLES and isinstance(m["content"], str) for m in messages)
    except (ValueError, KeyError, TypeError):
        good, messages = False, []
    if not good:
        raise UserError(
            f'{where}: expected {{"messages": [{{"role": ..., "content": ...}}, ...]}} with roles {", ".join(ROLES)} '
            f"and text contents, found: {line[:120]}"
        )
    roles = [message["role"] for message in messages]
    if roles[:1] == ["assistant"] or roles[-1:] != ["assistant"]:
        raise UserError(
            f"{where}: a conversation to learn from begins with a system or user message and ends with an assistant "
            f"message; this one has the roles: {', '.join(roles) or 'none'}."
        )
    return list(messages)


def _fraction(conversation: Sequence[Message]) -> float:
    """A number in [0, 1) that depends on the conversation alone."""
    digest = hashlib.sha256(json.dumps(conversation, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
