"""Recognises the format of a row of supervised data: the columns to learn from, and their meaning.

`rows.py` checks the content of a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slimrl.config.data import RowForm
from slimrl.errors import UserError
from slimrl.io.rows import preview

# The keys of a message in ShareGPT's format.
SHAREGPT = ("from", "value")


@dataclass(frozen=True, slots=True)
class RowKind:
    """A format of rows. `needs` are its required columns and `reads` its optional columns. `name` and `learnt` describe
    the format to users. With `is_text` the rows bypass the chat template. `form` is the format's name in the settings;
    two formats share the name `prompt_completion`."""

    form: RowForm
    needs: tuple[str, ...]
    name: str
    learnt: str = "every reply is learnt"
    reads: tuple[str, ...] = ()
    is_text: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of the format, required and optional."""
        return (*self.needs, *self.reads)

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return True if the row has all required columns, and none of them is empty."""
        return not any(is_empty(row.get(column)) for column in self.needs)


PAIR = ("prompt", "completion")
# A row is read in the first format that fits.
KINDS = (
    RowKind("messages", ("messages",), "`messages`"),
    RowKind(
        "prompt_completion", PAIR, "`prompt` and `completion` as messages", "the replies of the completion are learnt"
    ),
    RowKind("conversations", ("conversations",), "`conversations` with `role` and `content`"),
    RowKind(
        "alpaca",
        ("instruction", "output"),
        "Alpaca's `instruction`, `input` and `output`, as a question and its reply",
        "the reply is learnt",
        ("input",),
    ),
    RowKind(
        "text",
        ("text",),
        "`text`, written without the chat template",
        "all of it is learnt, and an end token",
        is_text=True,
    ),
)
TEXTS = RowKind(
    "prompt_completion",
    PAIR,
    "`prompt` and `completion` as texts, written without the chat template",
    "the completion is learnt, and an end token",
    is_text=True,
)


def kind_of_row(row: Any, where: str, wanted: RowForm) -> RowKind:
    """Return the format of a row. `wanted` is the setting `data.form`, which may be `auto`. Raises UserError if the row
    has no known format, or another format than `wanted`."""
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object with columns such as `messages`, found: {preview(row)}")
    kind = _first_that_fits(row, where, wanted)
    if kind.form in ("alpaca", "text"):
        return kind
    texts = [column for column in kind.needs if isinstance(row[column], str)]
    if kind.form == "prompt_completion" and texts:
        if other := next((column for column in kind.needs if column not in texts), None):
            raise UserError(
                f"{where}: `{texts[0]}` is a text and `{other}` is none: both are texts, or both are lists of "
                f"messages, found: {preview(row[other])}"
            )
        return TEXTS
    for column in kind.needs:
        _check_list(row[column], f"{where}: `{column}`")
    if is_empty(row[kind.needs[0]][0].get("from")):
        return kind
    name = "ShareGPT conversations" if kind.form == "conversations" else kind.name
    return replace(kind, name=f"{name} (`from`, `value`)")


def other_forms(row: Mapping[str, Any], taken: RowKind) -> Sequence[RowKind]:
    """Return the formats other than `taken` that also fit the row."""
    return [kind for kind in KINDS if kind.form != taken.form and kind.is_in(row)]


def is_empty(value: Any) -> bool:
    """Return True for an empty value. In a columnar file, the unused columns of a row have empty values."""
    return value is None or value in ("", [], {})


def _first_that_fits(row: Mapping[str, Any], where: str, wanted: RowForm) -> RowKind:
    kinds = [kind for kind in KINDS if wanted in ("auto", kind.form)]
    there = [kind for kind in kinds if all(row.get(column) is not None for column in kind.needs)]
    if found := next((kind for kind in [*filter(lambda kind: kind.is_in(row), there), *there]), None):
        return found
    known = ", or ".join(" and ".join(f"`{column}`" for column in kind.needs) for kind in kinds)
    has = ", ".join(f"`{key}`" for key, value in row.items() if value is not None) or "no columns"
    setting = "" if wanted == "auto" else f" (`data.form` is {wanted})"
    raise UserError(
        f"{where}: expected the columns {known}{setting}, found {has}. Write the row in one of these forms."
    )


def _check_list(messages: Any, where: str) -> None:
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise UserError(
            f'{where}: expected a list of messages, [{{"role": ..., "content": ...}}, ...], found: {preview(messages)}'
        )
