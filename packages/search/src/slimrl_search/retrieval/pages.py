"""Defines pages and questions about pages, and reads both from rows of data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, StringConstraints, TypeAdapter, ValidationError

from slimrl.config.base import describe_faults
from slimrl.errors import UserError


def _storable(text: Any) -> Any:
    """Return a text with each lone surrogate replaced by a question mark. JSON can contain lone surrogates, but UTF-8
    cannot encode them."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(_storable)]
Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), BeforeValidator(_storable)]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a corpus. `content` is markdown with its headings, including the title:

    Page("ampere", "Ampere", "# Ampere\\n\\nThe unit of current.\\n\\n## History\\n\\nNamed in 1881.")
    """

    id: Filled
    title: Filled
    content: Text = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its right answers: `answer` and each of `aliases`.

    The answer is on the page `page_id`, in `section` if that is known. If `split` is empty, a hash of the question
    determines the split.
    """

    question: Filled
    answer: Filled
    page_id: Text = ""
    aliases: tuple[Text, ...] = ()
    section: Text = ""
    split: Literal["train", "validation", "test", ""] = ""


PAGES, QUESTIONS = TypeAdapter(Page), TypeAdapter(Question)


def page_of(row: Any, where: str) -> Page:
    """Return the page of a row with the fields of `Page`. Raises UserError, prefixed with `where`, for an invalid
    row."""
    return _read(PAGES, row, where)


def question_of(row: Any, where: str) -> Question:
    """Return the question of a row with the fields of `Question`. Raises UserError, prefixed with `where`, for an
    invalid row.

    Without `page_id`, the id is made from the row's `filename`: `Miles Teller.md` becomes `miles_teller`. The questions
    published for the verifiers environment `wiki-search` have such file names.
    """
    if isinstance(row, Mapping):
        page_id = str(row.get("filename") or "").removesuffix(".md").lower().replace(" ", "_")
        row = {"page_id": page_id, **{key: value for key, value in row.items() if value is not None}}
    return _read(QUESTIONS, row, where)


def _read(adapter: TypeAdapter[T], row: Any, where: str) -> T:
    try:
        return adapter.validate_python(row)
    except ValidationError as error:
        raise UserError(f"{where}: {describe_faults(error)}") from error
