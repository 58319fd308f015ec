"""Reads a file of questions: each row becomes a task. This module is independent of rewards.

A row has a `prompt` (a text, or chat messages) or a `question`. It may have right answers (`answer`, `answers` or
`reference`), a `split`, an `id`, and any other columns, which are passed to reward functions.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from slimrl.environments.splits import SPLITS, split_of
from slimrl.errors import UserError
from slimrl.io.cache import say
from slimrl.io.rows import file_rows, preview
from slimrl.io.text import is_writable
from slimrl.tools.formats import as_json
from slimrl.types import ROLES, Message, Split, Task, is_message

PROMPTS = ("prompt", "question")
REFERENCES = ("answer", "answers", "reference")


def read_tasks(path: str, test_share: float) -> dict[Split, list[Task]]:
    """Return the tasks of the file `path`, by split. A row belongs to the split in its column `split`. Without this
    column, a hash of the question selects the share `test_share` for `test`. Raise UserError, with the row's position,
    for an invalid row."""
    tasks: dict[Split, list[Task]] = {one: [] for one in SPLITS}
    left_out: dict[str, str] = {}  # columns to omit, each with the type of an unusable value
    for given, where in file_rows(Path(path), "args.path"):
        if not isinstance(given, dict):
            raise UserError(f"{where} is no JSON object: {preview(given)}")
        row = {}
        for name, value in given.items():
            try:
                row[name] = json.loads(json.dumps(value, default=_as_json))
            except TypeError as error:
                left_out.setdefault(name, str(error))
        if lost := [name for name in PROMPTS if name in left_out]:
            raise UserError(f"{where}: `{lost[0]}` holds values of the type {left_out[lost[0]]}, and must be text.")
        _check_row(row, where)
        split = split_of(row, prompt_of(row), where, test_share)
        tasks[split].append(Task(f"{split}/{row.get('id', where.rpartition(':')[2])}", row))
    if not any(tasks.values()):
        raise UserError(f"{path} has no rows. Check args.path.")
    for name, kind in left_out.items():
        say(f"{path}: the column `{name}` is left out: it holds values of the type {kind}, which a task cannot have.")
    return tasks


def prompt_of(data: Mapping[str, Any]) -> str | list[Message]:
    """Return the question of a task: a text, or chat messages."""
    return cast(str | list[Message], next(data[name] for name in PROMPTS if data.get(name)))


def question_of(data: Mapping[str, Any]) -> str:
    """Return the question of a task as a text. If the question is a list of chat messages, return the last message."""
    prompt = prompt_of(data)
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def references_of(data: Mapping[str, Any]) -> list[str]:
    """Return the right answers of a task as texts; an empty list if no column has any."""
    return [as_json(one) for one in reference_values(data)[1]]


def reference_values(data: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the name of the first column that has right answers, and these answers without nulls."""
    for name in REFERENCES:
        given = data.get(name)
        if found := [one for one in (given if isinstance(given, list) else [given]) if one is not None]:
            return name, found
    return "", []


def _as_json(value: Any) -> Any:
    """Convert a value of parquet that is not JSON: times to ISO texts, decimals to numbers. Raise TypeError, with the
    name of the type, for any other value."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    raise TypeError(type(value).__name__)


def _check_row(row: Mapping[str, Any], where: str) -> None:
    given = [name for name in PROMPTS if row.get(name)]
    if not given:
        raise UserError(f"{where} has neither `prompt` nor `question`, but {sorted(map(str, row))}.")
    prompt = row[given[0]]
    if not is_writable(dict(row)):
        raise UserError(f"{where} has half of a surrogate pair, which is no text.")
    if isinstance(prompt, str):
        return
    if not isinstance(prompt, list) or not all(is_message(one) and one["role"] in ROLES for one in prompt):
        raise UserError(
            f"{where}: `{given[0]}` must be a text or a list of messages, each with a role and a text as content, not "
            f"{preview(prompt)}"
        )
    if prompt[-1]["role"] == "assistant":
        raise UserError(f"{where}: `{given[0]}` ends with a message of the assistant, which leaves nothing to answer.")
