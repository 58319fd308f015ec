"""`wiki-search`: answer a question by searching an encyclopedia with three tools.

The default encyclopedia is generated (`retrieval/encyclopedia.py`), so no model can know an answer beforehand. The
reward is 1 for a right answer in <answer> tags, else 0. `tools/formats.py` and slimrl-sandbox define the formats of
tool calls.
"""

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from pydantic import PositiveInt

from slimrl.errors import UserError
from slimrl.io.text import hash_number, spans_between
from slimrl.judges.judge import Judge, MatchJudge, judge_of, read_judge
from slimrl.judges.match import matches
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.models.quiet import no_progress_bars
from slimrl.monitor.console import RunConsole
from slimrl.tools.formats import CallFormat, FormatName, formats_of
from slimrl.types import Message, Rollout, Script, Split, Task, Taskset, Turn
from slimrl_search.retrieval.corpus import Corpus
from slimrl_search.retrieval.embedding import SentenceEmbedder
from slimrl_search.retrieval.encyclopedia import Encyclopedia
from slimrl_search.retrieval.pages import Question, question_of
from slimrl_search.retrieval.prepare import GENERATED, Source, directory_of, prepare_corpus, prepare_index
from slimrl_search.retrieval.sources import read_questions
from slimrl_search.wiki_search.metrics import Record, kind_of_failure
from slimrl_search.wiki_search.scripts import solve, wander
from slimrl_search.wiki_search.tools import WikiTools

TAGS = "<answer>", "</answer>"
TASK = "Answer the question."


@dataclass
class WikiSearch(Taskset):
    """Distinct, seeded questions on the pages of a corpus. The fields are the `args` of the config section.

    `corpus` is `generated`, or a source that `retrieval/sources.py` reads. A generated corpus has `num_pages` pages,
    with `num_train` and `num_test` questions. For another corpus, `questions` is a source of questions.
    Corpus and index are built once, in `data_dir` or in the cache. `judge` has the fields of `JudgeServer` in
    `judges/judge.py`. If `judge` is empty, an answer is judged by its words.

    `format` is the format of tool calls: `tags`, `native` (the format of the model's chat template), or `code`. For
    `code`, `sandbox` is empty or has the fields of `SandboxSettings` of slimrl-sandbox. The policy reads at most
    `max_tool_tokens` tokens of a tool's result or a program's output.
    """

    corpus: str = GENERATED
    questions: str = ""
    num_pages: int = 1000
    seed: int = 0
    num_train: int = 2000
    num_test: int = 200
    num_results: PositiveInt = 10
    format: FormatName = "tags"
    max_tool_tokens: PositiveInt = 1000
    sandbox: dict[str, Any] = field(default_factory=dict)
    data_dir: str = ""
    judge: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.corpus == GENERATED) == bool(self.questions):
            raise UserError(
                "wiki-search: `questions` belong to a `corpus` of one's own; a generated one brings its own."
            )
        if self.sandbox and self.format != "code":
            raise UserError(f'wiki-search: a `sandbox` is for `format = "code"`, and this is "{self.format}".')
        read_judge(self.judge)

    def prepare(self) -> None:
        """Build the corpus, its index, the call format and the judge, unless they exist. Raises UserError on
        failure."""
        _ = self._pages, self._tools, self._new_calls, self._own, self._judge

    @cached_property
    def _source(self) -> Source:
        return Source(self.corpus, self.num_pages, self.seed)

    @cached_property
    def _pages(self) -> Corpus:
        progress = RunConsole(sys.stderr).progress
        return prepare_corpus(directory_of(self._source, self.data_dir), self._source, progress)

    @cached_property
    def _tools(self) -> WikiTools:
        with no_progress_bars():
            embedder = SentenceEmbedder()
        progress = RunConsole(sys.stderr).progress
        index = prepare_index(directory_of(self._source, self.data_dir), self._pages, embedder, progress)
        return WikiTools(self._pages, index, self.num_results)

    @cached_property
    def _new_calls(self) -> Callable[[], CallFormat]:
        """A function that makes a call format, once for each episode."""
        return formats_of(self.format, self._tools.by_name, self.max_tool_tokens, self.sandbox)

    @cached_property
    def _judge(self) -> Judge:
        return judge_of(self.judge)

    @cached_property
    def _own(self) -> list[Question]:
        own = list(read_questions(self.questions, "`questions`")) if self.questions else []
        if isinstance(read_judge(self.judge), MatchJudge):
            _check_answerable(own, self.questions)
        return own

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the questions of a split. Raises UserError if there are too few."""
        if self._own:
            mine = [question for question in self._own if split_of(question) == split]
        else:
            questions = Encyclopedia(self.num_pages, self.seed).questions()
            num = self.num_train if split == "train" else self.num_test
            mine = list(islice((question for question in questions if split_of(question) == split), num))
        return [_task(question, f"{split}/{place}") for place, question in enumerate(mine)]

    def environment(self, task: Task) -> "WikiSearchEpisode":
        record = Record(question_of(task.data, task.id), self._tools.page_ids)
        return WikiSearchEpisode(record, self._new_calls(), self._judge)

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts by name: an expert that knows the place of the answer, and a player that calls tools and answers
        at random."""

        def expert(task: Task, seed: int) -> list[Message]:
            episode = self.environment(task)
            return _play(episode, solve(episode.record.question, episode, episode.calls, self._title))

        def at_random(task: Task, seed: int) -> list[Message]:
            episode, rng = self.environment(task), random.Random(f"{seed}/{task.id}")
            return _play(episode, wander(episode.record.question, episode, episode.calls, rng))

        return {"expert": expert, "random": at_random}

    def failure_kind(self, rollout: Rollout) -> str:
        """Return the kind of failure that `metrics.kind_of_failure` finds in the metrics."""
        return kind_of_failure(rollout.metrics)

    def offload(self) -> None:
        """Free the device memory of a judge that shares the policy's device."""
        self._judge.offload()

    def _title(self, page_id: str) -> str:
        page = self._pages.page(page_id)
        if page is None:
            raise UserError(f"wiki-search: a question says that its answer is on `{page_id}`, which is no page.")
        return page.title


class WikiSearchEpisode:
    """One episode on a question. The policy's answer ends the episode."""

    def __init__(self, record: Record, calls: CallFormat, judge: Judge) -> None:
        self.record = record
        self.calls = calls
        self._judge = judge

    async def start(self) -> list[Message]:
        return self.calls.opening(TASK, self.record.question.question)

    async def step(self, reply: str) -> Turn:
        record, visible = self.record, without_thoughts(reply)
        record.replies.append(reply)
        answer = next(spans_between(visible, *TAGS), None)
        # The first action in the reply counts: an answer after a call is a guess without the call's result.
        if answer is None or self.calls.call_start(visible) < answer[0] - len(TAGS[0]):
            reaction = await self.calls.react(visible)
            record.calls += reaction.calls
            return Turn(done=False, messages=reaction.messages, metrics=record.metrics())
        question = record.question
        verdict = await self._judge.judge(
            question.question, visible[slice(*answer)], (question.answer, *question.aliases)
        )
        record.is_correct = verdict.correct
        return Turn(done=True, reward=float(verdict.correct), metrics={**record.metrics(), **verdict.metrics})

    async def close(self) -> None:
        await self.calls.close()


def _play(episode: WikiSearchEpisode, script: Coroutine[Any, Any, list[Message]]) -> list[Message]:
    """Run a script on the episode in a new event loop, and return the whole conversation."""

    async def conversation() -> list[Message]:
        try:
            return await script
        finally:
            await episode.close()

    return asyncio.run(conversation())


def split_of(question: Question) -> str:
    """Return the question's own `split` if it is set. Otherwise choose the split by a hash of the question: 80% train,
    10% validation, 10% test."""
    if question.split:
        return question.split
    return {0: "test", 1: "validation"}.get(hash_number(question.question, 1) % 10, "train")


def _check_answerable(questions: Sequence[Question], source: str) -> None:
    """Raise UserError if an answer has no words. The comparison of words would reject even an exact copy of this
    answer."""
    for question in questions:
        for answer in (question.answer, *question.aliases):
            if not matches(answer, [answer]):
                raise UserError(
                    f"{source}: the answer {answer!r} to {question.question!r:.200} has no word, so no reply can be "
                    "right by comparing words. Write it in words, take it out, or name a model in `judge`."
                )


def _task(question: Question, task_id: str) -> Task:
    return Task(task_id, {**asdict(question), "aliases": list(question.aliases)})
