"""Records a search episode and computes its metrics, independent of the format of tool calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slimrl.tools.base import CallAttempt
from slimrl_search.retrieval.pages import Question
from slimrl_search.retrieval.sections import FULL, key_of

NUM_WORDS = 4
Pages = Callable[[str], Iterable[str]]


@dataclass
class Record:
    """The record of one episode.

    `found_by` maps a query to the ids of the pages that a search with this query finds. The record of a program's calls
    does not contain their results, so these ids are searched again.
    """

    question: Question
    found_by: Pages
    replies: list[str] = field(default_factory=list)
    calls: list[CallAttempt] = field(default_factory=list)
    is_correct: bool = False

    def metrics(self) -> dict[str, float]:
        """Return the metrics so far. The metrics of page and section are missing if the question does not name a page
        and a section."""
        searches = [call.arguments[0] for call in self.calls if call.tool == "search_pages" and not call.error]
        called = [(call.tool, call.arguments) for call in self.calls if call.tool]
        invalid = sum(bool(call.error) for call in self.calls)
        metrics = {
            "correct": float(self.is_correct),
            "tool_calls": float(len(called)),
            "searches": float(len(searches)),
            "invalid_calls": float(invalid),
            "invalid_share": invalid / len(self.calls) if self.calls else 0.0,
            "repeated_calls": float(len(called) - len(set(called))),
            "repetition": repetition(self.replies),
        }
        return metrics | self._page(searches) | self._section()

    def _page(self, searches: list[str]) -> dict[str, float]:
        """Return two metrics: whether the first search found the page of the answer, and whether any search found
        it."""
        if not self.question.page_id:
            return {}
        hits = [self.question.page_id in self.found_by(query) for query in searches]
        return {"right_page_first": float(hits[:1] == [True]), "right_page": float(any(hits))}

    def _section(self) -> dict[str, float]:
        """Return one metric: whether the section of the answer was read, alone or as part of the whole page."""
        if not self.question.page_id or not self.question.section:
            return {}
        page_id, key = self.question.page_id, key_of(self.question.section)
        read = {call.arguments[0] for call in self.calls if call.tool == "read_section" and not call.error}
        return {"right_section": float(bool(read & {f"{page_id}:{key}", f"{page_id}:{FULL}"}))}


def kind_of_failure(metrics: Mapping[str, float]) -> str:
    """Return the kind of failure of an episode without a right answer, from its metrics. Return an empty text if the
    episode ran out of turns."""
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


def repetition(replies: Sequence[str]) -> float:
    """Return the share of n-grams of `NUM_WORDS` words that occur earlier in the same reply, over all replies. This is
    1 - distinct-n (Li et al. 2016), except that the n-grams of each reply are counted separately. The share is 0 if no
    reply has `NUM_WORDS` words. A text that repeats itself again and again has more than 0.5.

    >>> repetition(["the cat sat down", "and on and on and on and on"])
    0.5
    """
    num = num_distinct = 0
    for reply in replies:
        words = reply.split()
        ngrams = [tuple(words[start : start + NUM_WORDS]) for start in range(len(words) - NUM_WORDS + 1)]
        num += len(ngrams)
        num_distinct += len(set(ngrams))
    return 1.0 - num_distinct / num if num else 0.0
