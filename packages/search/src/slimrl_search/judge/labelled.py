"""Reads answers that are labelled right or wrong from a file, for comparison with a judge. Depends on no judge."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.rows import file_rows, preview

LABELS = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A response to a question; `label` is True if it is right. `kind` is the sort of response, if known.

    >>> Labelled("When was it founded?", "in 1874", ("1874",), True).row["label"]
    'yes'
    """

    question: str
    response: str
    references: tuple[str, ...]
    label: bool
    kind: str = ""

    @property
    def row(self) -> dict[str, Any]:
        """The response as a line of a file in the format of `read_labelled`."""
        return {
            "question": self.question,
            "response": self.response,
            "references": list(self.references),
            "label": "yes" if self.label else "no",
            "kind": self.kind,
        }


def read_labelled(path: Path) -> list[Labelled]:
    """Return the labelled responses of a file. Its rows have `question`, `response`, `label`, and either `references`
    or `answer`, with `aliases` if there are any. Raises UserError, which names the row, if a field is missing."""
    rows = [_parse_row(row, where) for row, where in file_rows(path, "the file to calibrate on")]
    if not rows:
        raise UserError(f"{path} has no rows; `slimrl judge examples {path}` makes some up.")
    return rows


def _parse_row(row: Any, where: str) -> Labelled:
    if not isinstance(row, Mapping):
        raise UserError(f'{where}: expected {{"question": ..., "response": ..., "label": ...}}, found: {preview(row)}')
    for name in ("question", "response"):
        if not isinstance(row.get(name), str):
            raise UserError(f"{where}: `{name}` must be a text, not {row.get(name)!r:.80}.")
    references = row.get("references", [row.get("answer"), *(row.get("aliases") or ())])
    is_texts = isinstance(references, list) and all(isinstance(one, str) and one.strip() for one in references)
    if not is_texts or not references:
        raise UserError(f"{where}: needs `references`, a list of texts, or `answer`; found {references!r:.80}.")
    label = LABELS.get(str(row.get("label")).strip().lower())
    if label is None:
        raise UserError(f"{where}: `label` must be yes or no, not {row.get('label')!r:.80}.")
    return Labelled(row["question"], row["response"], tuple(references), label, str(row.get("kind") or ""))
