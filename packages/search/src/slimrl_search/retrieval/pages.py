"""The module has the types of a page and of a question about it, and reads both from rows of data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slimrl.errors import UserError
from slimrl.io.rows import preview

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a corpus. `content` is markdown with its headings, including the title:

    Page("ampere", "Ampere", "# Ampere\\n\\nThe unit of current.\\n\\n## History\\n\\nNamed in 1881.")
    """

    id: str
    title: str
    content: str

    def __post_init__(self) -> None:
        assert self.id and self.title, f"a page needs an id and a title: {self.id!r}, {self.title!r}"


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its right answers: `answer` and each of `aliases`.

    The answer is on the page `page_id`, in `section` if known. A question of two hops names an entity of another page,
    `via`, whose `via_section` leads to the page of the answer. `split` is one of SPLITS, or empty if the data set has
    no splits.
    """

    question: str
    answer: str
    page_id: str
    aliases: tuple[str, ...] = ()
    section: str = ""
    via: str = ""
    via_section: str = ""
    split: str = ""


def page_of(row: Any, where: str) -> Page:
    """Return the page of a row with `id`, `title` and `content`. Raises UserError, prefixed with `where`."""
    if not isinstance(row, Mapping):
        raise UserError(f'{where}: expected {{"id": ..., "title": ..., "content": ...}}, found: {preview(row)}')
    for name in ("id", "title"):
        value = row.get(name)
        if not isinstance(value, str) or not value.strip():
            named = f" (id {row['id']!r})" if row.get("id") else ""
            raise UserError(f"{where}{named}: a page needs `{name}`, a text that is not empty, not {value!r:.80}.")
    content = row.get("content", "")
    if not isinstance(content, str):
        raise UserError(f"{where} (id {row['id']!r}): `content` must be text (markdown), not {type(content).__name__}.")
    return Page(_storable(row["id"].strip()), _storable(row["title"].strip()), _storable(content))


def question_of(row: Any, where: str) -> Question:
    """Return the question of a row with `question` and `answer`, and optionally the other fields of `Question`.

    The questions published for the verifiers environment `wiki-search` have a file's name, `Miles Teller.md`, instead
    of the page's id, `miles_teller`: without `page_id`, a row's `filename` is used. Raises UserError, prefixed with
    `where`.
    """
    if not isinstance(row, Mapping):
        raise UserError(f'{where}: expected {{"question": ..., "answer": ...}}, found: {preview(row)}')
    for name in ("question", "answer"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise UserError(f"{where}: a question needs `{name}`, a text that is not empty, not {row.get(name)!r:.80}.")
    aliases = row.get("aliases") or ()
    # A string is a sequence of strings too, so each of its characters would count as a right answer.
    if isinstance(aliases, str) or not all(isinstance(alias, str) for alias in aliases):
        raise UserError(f"{where}: `aliases` must be a list of texts, not {aliases!r:.80}.")
    names = ("page_id", "section", "via", "via_section", "split")
    known = {name: str(row.get(name) or "") for name in names}
    known["page_id"] = known["page_id"] or _page_id_of(str(row.get("filename") or ""))
    if known["split"] and known["split"] not in SPLITS:
        raise UserError(f"{where}: `split` is one of {', '.join(SPLITS)}, or left away, not {known['split']!r:.80}.")
    return Question(row["question"].strip(), row["answer"].strip(), aliases=tuple(aliases), **known)


def _page_id_of(filename: str) -> str:
    return filename.removesuffix(".md").lower().replace(" ", "_")


def _storable(text: str) -> str:
    """Return the text with a question mark for each lone surrogate, which JSON can spell but UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
