"""What is remembered of an episode of a search, and the metrics made of it. Knows nothing of how calls are spelt."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from slimrl.environments.repetition import repeats, repetition
from slimrl.retrieval.pages import Question
from slimrl.retrieval.sections import FULL, key_of
from slimrl.tools.base import CallAttempt

Pages = Callable[[str], Iterable[str]]


@dataclass
class Record:
    """`found_by` gives the ids of the pages that a query finds: of a program only its calls are known, and not what
    came back."""

    question: Question
    found_by: Pages
    replies: list[str] = field(default_factory=list)
    calls: list[CallAttempt] = field(default_factory=list)
    is_correct: bool = False

    def metrics(self) -> dict[str, float]:
        """Those so far. What cannot be told (a question may come without its page or section) is left out."""
        searches = [call.arguments[0] for call in self.calls if call.tool == "search_pages" and not call.error]
        invalid = sum(bool(call.error) for call in self.calls)
        told = {
            "correct": float(self.is_correct),
            "tool_calls": float(sum(bool(call.tool) for call in self.calls)),
            "searches": float(len(searches)),
            "invalid_calls": float(invalid),
            "invalid_share": invalid / len(self.calls) if self.calls else 0.0,
            "repeated_calls": float(repeats([(call.tool, call.arguments) for call in self.calls if call.tool])),
            "repetition": repetition(self.replies),
        }
        return told | self._page(searches) | self._section()

    def _page(self, searches: list[str]) -> dict[str, float]:
        if not self.question.page_id:
            return {}
        hits = [self.question.page_id in self.found_by(query) for query in searches]
        return {"right_page_first": float(hits[:1] == [True]), "right_page": float(any(hits))}

    def _section(self) -> dict[str, float]:
        if not self.question.page_id or not self.question.section:
            return {}
        page_id, key = self.question.page_id, key_of(self.question.section)
        read = {call.arguments[0] for call in self.calls if call.tool == "read_section" and not call.error}
        return {"right_section": float(bool(read & {f"{page_id}:{key}", f"{page_id}:{FULL}"}))}


def kind_of_failure(metrics: Mapping[str, float]) -> str:
    """In what way an episode without a right answer failed, from its metrics; empty where its end says it all."""
    if metrics["invalid_calls"] and metrics["invalid_share"] == 1.0:
        return "invalid calls only"
    if metrics["unfinished"]:
        return ""
    if not metrics["searches"]:
        return "never searched"
    if not metrics.get("right_page", 1.0):
        return "right page not found"
    if not metrics.get("right_section", 1.0):
        return "right page, wrong section"
    return "right section, wrong answer" if "right_section" in metrics else "wrong answer"
