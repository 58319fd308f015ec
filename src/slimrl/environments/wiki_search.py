"""`wiki-search`: answer a question by searching an encyclopedia with three tools, one call a turn.

Offline the encyclopedia is made up (`retrieval/encyclopedia.py`), so that no answer can be known beforehand. The reward
is 1 for a right answer in <answer> tags and 0 for everything else.
"""

import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from slimrl.environments.base import Turn
from slimrl.environments.judge import THOUGHTS, Judge, judge_of
from slimrl.environments.tools import CALL, ToolError, bounded_text, run_call
from slimrl.environments.wiki_expert import solve
from slimrl.environments.wiki_tools import WikiTools
from slimrl.errors import UserError
from slimrl.models.quiet import no_progress_bars
from slimrl.models.store import cache_root
from slimrl.monitor.console import RunConsole
from slimrl.retrieval.embedding import DEFAULT, SentenceEmbedder
from slimrl.retrieval.encyclopedia import Encyclopedia
from slimrl.retrieval.pages import Question, question_of
from slimrl.retrieval.prepare import GENERATED, Source, prepare_corpus, prepare_index
from slimrl.retrieval.sources import read_questions
from slimrl.types import Message, Split, Task

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
INSTRUCTION = """\
Answer the question. Look it up, with one of these calls at a time:
<tool>search_pages("query")</tool> finds pages by title.
<tool>view_sections("page_id")</tool> lists the sections of a page.
<tool>read_section("section_id")</tool> reads a section.
When you know it, end with <answer>the answer</answer>."""


@dataclass
class WikiSearch:
    """Questions on the pages of a corpus, seeded and distinct. Its fields are the `args` of its config section.

    `corpus` is `generated`, or what `retrieval/sources.py` reads; then `questions` is too. Of a generated one there are
    `num_pages` pages and `num_train` and `num_test` questions of `hops` hops. What is built, once, lies in `data_dir`,
    or in the cache. Results of tools are cut at `max_tool_chars` characters. `judge` is empty, to compare words, or has
    the fields of `environments/judge.py`'s `JudgeServer`.
    """

    corpus: str = GENERATED
    questions: str = ""
    num_pages: int = 1000
    seed: int = 0
    hops: int = 1
    num_train: int = 2000
    num_test: int = 200
    num_results: int = 10
    max_tool_chars: int = 4000
    embedder: str = DEFAULT
    data_dir: str = ""
    judge: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.corpus == GENERATED) == bool(self.questions):
            raise UserError(
                "wiki-search: `questions` belong to a `corpus` of one's own; a generated one brings its own."
            )
        if self.hops not in (1, 2):
            raise UserError(f"wiki-search: `hops` must be 1 or 2, not {self.hops}.")
        source = Source(self.corpus, self.num_pages, self.seed)
        directory, progress = directory_of(source, self.data_dir), RunConsole(sys.stderr).progress
        self._pages = prepare_corpus(directory, source, progress)
        with no_progress_bars():
            embedder = SentenceEmbedder(self.embedder)
        index = prepare_index(directory, self._pages, embedder, progress)
        self._tools = WikiTools(self._pages, index, self.num_results)
        self._judge = judge_of(self.judge)
        self._own = list(read_questions(self.questions, "`questions`")) if self.questions else []

    def tasks(self, split: Split) -> Sequence[Task]:
        """Raises UserError when there are not that many questions."""
        if self._own:
            mine = [question for question in self._own if split_of(question) == split]
        else:
            mine = list(self._generated(split))
        return [_task(question, f"{split}/{place}") for place, question in enumerate(mine)]

    def environment(self, task: Task) -> "WikiSearchEpisode":
        return WikiSearchEpisode(question_of(task.data, task.id), self._tools, self._judge, self.max_tool_chars)

    def demonstrate(self, task: Task) -> list[Message]:
        """An expert that knows which page and section to look for, and goes there with the tools."""
        return solve(question_of(task.data, task.id), self.environment(task), self._title)

    def _title(self, page_id: str) -> str:
        page = self._pages.page(page_id)
        if page is None:
            raise UserError(f"wiki-search: a question says that its answer is on `{page_id}`, which is no page.")
        return page.title

    def _generated(self, split: Split) -> Iterator[Question]:
        asked = Encyclopedia(self.num_pages, self.seed).questions(self.hops)
        mine = (question for question in asked if split_of(question) == split)
        yield from islice(mine, self.num_train if split == "train" else self.num_test)


class WikiSearchEpisode:
    """One question, until it is answered."""

    def __init__(self, question: Question, tools: WikiTools, judge: Judge, max_tool_chars: int) -> None:
        self._question = question
        self._tools = tools.by_name
        self._judge = judge
        self._max_tool_chars = max_tool_chars
        self._counts = {"tool_calls": 0, "invalid_calls": 0, "searches": 0}
        self._found_first = self._found = self._correct = False

    async def start(self) -> list[Message]:
        return self.opening()

    async def step(self, reply: str) -> Turn:
        said = THOUGHTS.sub("", reply)
        call, answer = CALL.search(said), ANSWER.search(said)
        if answer is None or (call and call.start() < answer.start()):
            return self.look_up(said)
        references = (self._question.answer, *self._question.aliases)
        self._correct = await self._judge.judge(self._question.question, answer[1], references)
        return Turn(done=True, reward=float(self._correct), metrics=self._metrics())

    def opening(self) -> list[Message]:
        return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": self._question.question}]

    def look_up(self, said: str) -> Turn:
        """The result of the first call in what the policy said, or what is wrong with it."""
        call = CALL.search(said)
        try:
            if call is None:
                raise ToolError("there was neither a call in <tool> tags nor an answer in <answer> tags.")
            text = self._run(call[1])
        except ToolError as error:
            self._counts["invalid_calls"] += 1
            text = f"Error: {error}"
        content = f"<result>\n{bounded_text(text, self._max_tool_chars)}\n</result>"
        return Turn(done=False, messages=[{"role": "user", "content": content}], metrics=self._metrics())

    def _run(self, call: str) -> str:
        self._counts["tool_calls"] += 1
        name, result = run_call(call, self._tools)
        if name == "search_pages":
            hit = any(row["page_id"] == self._question.page_id for row in result)
            self._found = self._found or hit
            self._found_first = self._found_first or (hit and self._counts["searches"] == 0)
            self._counts["searches"] += 1
        return str(result)

    def _metrics(self) -> dict[str, float]:
        return {
            "correct": float(self._correct),
            "tool_calls": float(self._counts["tool_calls"]),
            "invalid_calls": float(self._counts["invalid_calls"]),
            "right_page_first": float(self._found_first),
            "right_page": float(self._found),
        }


def split_of(question: Question) -> str:
    """`train`, `validation` or `test`: as its author says, or by a hash of the question, 80/10/10."""
    if question.split:
        return question.split
    tenth = hashlib.sha256(question.question.encode()).digest()[0] % 10
    return {0: "test", 1: "validation"}.get(tenth, "train")


def _task(question: Question, task_id: str) -> Task:
    return Task(task_id, {**asdict(question), "aliases": list(question.aliases)})


def directory_of(source: Source, data_dir: str) -> Path:
    """Where a corpus and its index lie: in `data_dir`, or where it is empty, in the cache."""
    if data_dir:
        return Path(data_dir).expanduser()
    if source.name == GENERATED:
        return cache_root() / "wiki" / f"{GENERATED}-{source.num_pages}-{source.seed}"
    path = Path(source.name).expanduser()
    digest = hashlib.sha256(str(path.resolve() if path.exists() else source.name).encode()).hexdigest()[:12]
    return cache_root() / "wiki" / f"{path.stem}-{digest}"
