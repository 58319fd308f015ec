"""A page of a corpus, and a question that one answers. Plain data that survives JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slimrl.errors import UserError
from slimrl.io.rows import preview

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Page:
    """`content` is markdown with its headings, the title's included:

    Page("ampere", "Ampere", "# Ampere\\n\\nThe unit of current.\\n\\n## History\\n\\nNamed in 1881.")
    """

    id: str
    title: str
    content: str

    def __post_init__(self) -> None:
        assert self.id and self.title, f"a page needs an id and a title: {self.id!r}, {self.title!r}"


@dataclass(frozen=True, slots=True)
class Question:
    """`answer` and `aliases` are all right; the answer stands on the page `page_id`, in `section` where that is known.

    A question of two hops names an entity of another page, `via`, whose `via_section` leads to the page of the answer.
    `split` is one of SPLITS where whoever wrote the question decided so.
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
    """A row with `id`, `title` and `content`. Raises UserError that names the row, by `where` and by what it has."""
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
    """A row with `question` and `answer`, and as far as they are known `aliases`, `page_id` and `section`.

    The questions published for `wiki-search` name the file that the page of the answer was once in, `Miles Teller.md`,
    instead of its id, `miles_teller`: a row's `filename` is understood where it has no `page_id`."""
    if not isinstance(row, Mapping):
        raise UserError(f'{where}: expected {{"question": ..., "answer": ...}}, found: {preview(row)}')
    for name in ("question", "answer"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise UserError(f"{where}: a question needs `{name}`, a text that is not empty, not {row.get(name)!r:.80}.")
    aliases = row.get("aliases") or ()
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
    """Without halves of characters, which JSON can hold and nothing else."""
    return text.encode("utf-8", "replace").decode()
