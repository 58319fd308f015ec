"""Recognises the form of a row of supervised data: the columns to learn from, and their interpretation.

It does not check the conversation; `rows.py` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slimrl.config.data import RowForm
from slimrl.errors import UserError
from slimrl.io.rows import preview

# The keys of a message in ShareGPT's form.
SHAREGPT = ("from", "value")


@dataclass(frozen=True, slots=True)
class Form:
    """A form of rows: its required and its optional columns."""

    name: RowForm
    needs: tuple[str, ...]
    reads: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that make up the form."""
        return (*self.needs, *self.reads)

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return True if the row has all required columns, and none of them is empty."""
        return not any(is_empty(row.get(column)) for column in self.needs)


# The first form that fits is taken.
FORMS = (
    Form("messages", ("messages",)),
    Form("prompt_completion", ("prompt", "completion")),
    Form("conversations", ("conversations",)),
    Form("alpaca", ("instruction", "output"), ("input",)),
    Form("text", ("text",)),
)


@dataclass(frozen=True, slots=True)
class RowKind:
    """The interpretation of a file's rows: their form, its name in a sentence, and the part that is learnt. With
    `is_text` the rows bypass the chat template."""

    form: Form
    name: str
    learnt: str = "every reply is learnt"
    is_text: bool = False


ALPACA = "Alpaca's `instruction`, `input` and `output`, as a question and its reply"
SHAREGPT_NAME = "ShareGPT conversations (`from`, `value`)"
TEXT = "`text`, written without the chat template"
TEXTS = "`prompt` and `completion` as texts, written without the chat template"


def kind_of_row(row: Any, where: str, wanted: RowForm) -> RowKind:
    """Return the kind of a row. `wanted` is a form, or `auto`. Raises UserError if the row is in no form, or not in
    `wanted`."""
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object with columns such as `messages`, found: {preview(row)}")
    form = _form(row, where, wanted)
    if form.name == "alpaca":
        return RowKind(form, ALPACA, "the reply is learnt")
    if form.name == "text":
        return RowKind(form, TEXT, "all of it is learnt, and an end token", is_text=True)
    texts = [column for column in form.needs if isinstance(row[column], str)]
    if form.name == "prompt_completion" and len(texts) == len(form.needs):
        return RowKind(form, TEXTS, "the completion is learnt, and an end token", is_text=True)
    if form.name == "prompt_completion" and texts:
        other = next(column for column in form.needs if column not in texts)
        raise UserError(
            f"{where}: `{texts[0]}` is a text and `{other}` is none: both are texts, or both are lists of messages, "
            f"found: {preview(row[other])}"
        )
    for column in form.needs:
        _check_list(row[column], f"{where}: `{column}`")
    return _kind_of_messages(form, row)


def other_forms(row: Mapping[str, Any], taken: Form) -> Sequence[Form]:
    """Return the other forms that also fit the row."""
    return [form for form in FORMS if form is not taken and form.is_in(row)]


def is_empty(value: Any) -> bool:
    """Return True for an empty value. In a columnar file, a row has such values in the columns that it does not use."""
    return value is None or value in ("", [], {})


def _form(row: Mapping[str, Any], where: str, wanted: RowForm) -> Form:
    forms = [form for form in FORMS if wanted in ("auto", form.name)]
    there = [form for form in forms if all(row.get(column) is not None for column in form.needs)]
    if found := next((form for form in [*filter(lambda form: form.is_in(row), there), *there]), None):
        return found
    known = ", or ".join(" and ".join(f"`{column}`" for column in form.needs) for form in forms)
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


def _kind_of_messages(form: Form, row: Mapping[str, Any]) -> RowKind:
    is_sharegpt = not is_empty(row[form.needs[0]][0].get("from"))
    if form.name == "conversations":
        return RowKind(form, SHAREGPT_NAME if is_sharegpt else "`conversations` with `role` and `content`")
    name = " and ".join(f"`{column}`" for column in form.needs) + (" (`from`, `value`)" if is_sharegpt else "")
    if form.name == "prompt_completion":
        return RowKind(form, f"{name} as messages", "the replies of the completion are learnt")
    return RowKind(form, name)
