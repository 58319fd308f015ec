"""`dataset`: questions from a JSONL or parquet file, graded by your own functions, or by scorers and a judge.

See `rows.py` for the columns of a row, `rewards.py` for the calls of rewards, `environments/answers.py` for answers.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from slimrl.environments.answers import Form, read_number
from slimrl.environments.base import CONSTANT
from slimrl.environments.dataset.episode import Grader, QuestionEpisode, opening, opening_with_tools
from slimrl.environments.dataset.rewards import JUDGE, SCORERS, Reward, read_rewards
from slimrl.environments.dataset.rows import question_of, read_tasks, reference_values, references_of
from slimrl.environments.dataset.toolbox import add_tool, check_calls, read_toolbox
from slimrl.environments.scripts import converse
from slimrl.errors import RolloutError, UserError, nearest
from slimrl.io.rows import hash_fraction, preview
from slimrl.io.settings import refuse_idle
from slimrl.judges.judge import Judge, judge_of, read_judge
from slimrl.judges.match import matches
from slimrl.tools.base import TypedTool
from slimrl.tools.formats import CallFormat, FormatName, check_sandbox, formats_of
from slimrl.types import Environment, Message, Rollout, Script, Split, Task, Taskset

INSTRUCTIONS: dict[Form, str] = {
    "lenient": "Write the answer like this: <answer>answer</answer>",
    "tag": "Write the answer like this: <answer>answer</answer>",
    "whole": "",
}
TASK = "Answer the question."
# Parameters of rewards that only the trainer of TRL passes.
TRAINER_ONLY = ("completion_ids", "prompt_ids", "trainer_state", "log_extra", "log_metric", "environments")
# Limits of the search for the best constant answer. The candidates are the `NUM_CANDIDATES` most frequent right
# answers. Each candidate is graded on `NUM_TASKS` tasks. The search stops after `BUDGET_S` seconds, because a reward
# function may be slow.
NUM_CANDIDATES, NUM_TASKS, BUDGET_S = 8, 200, 10.0


@dataclass
class Dataset(Taskset):
    """A taskset of questions from the file `path`. The fields are the `args` of the config section.

    Test tasks are marked in the column `split`. Without this column, a hash of the question selects the share
    `test_share`. `reward` is a scorer's name, a function's location, or a list of names,
    locations and tables (`RewardSettings`). `judge` has the fields of `JudgeServer` in `judges/judge.py`.

    `answer` is the form of an answer in a reply (`environments/answers.py`). `system` replaces the default system
    message, which explains this form. A question with a system message keeps that message.

    `tools` are functions and MCP servers (`toolbox.py`). `format` is the format of calls: `tags`, `native` (as in the
    model's chat template) or `code`. For `code`, `sandbox` has the fields of `SandboxSettings` of slimrl-sandbox. An
    episode with tools continues until the policy answers in tags. The policy reads at most `max_tool_tokens` tokens of
    a result.
    """

    path: str
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    reward: Any = ""
    judge: dict[str, Any] = field(default_factory=dict)
    answer: Form = "lenient"
    system: str = ""
    tools: Any = ()
    format: FormatName = "tags"
    max_tool_tokens: PositiveInt = 500
    sandbox: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._loaded: dict[str, Any] = {}
        self._lock = Lock()
        self._form: Form = "tag" if self.tools else self.answer
        default = JUDGE if self.judge else "exact"
        self._rewards = read_rewards(default if self.reward == "" else self.reward, self._loaded, lambda: self._judge)
        asks = any(reward.scorer == JUDGE for reward in self._rewards)
        if self.judge and not asks:
            raise UserError('dataset: there is a `judge`, but no reward asks it; add the reward "judge".')
        if asks:
            read_judge(self.judge)
        self._check_tools()
        self._functions, self._servers = read_toolbox(self.tools, self._loaded)

    def _check_tools(self) -> None:
        if not isinstance(self.tools, (list, tuple)):
            raise UserError(f"dataset: `tools` is a list of tables, not {self.tools!r:.80}.")
        if self.tools and self.answer not in ("lenient", "tag"):
            raise UserError(
                f'dataset: with `tools` an answer stands in tags, so `answer = "{self.answer}"` cannot act.'
            )
        if self.sandbox and (self.format != "code" or not self.tools):
            raise UserError('dataset: a `sandbox` is for `tools` with `format = "code"`.')
        check_sandbox(self.sandbox)
        if not self.tools:
            refuse_idle(self, ("format", "max_tool_tokens"), "dataset", "without `tools`")

    @cached_property
    def _tools(self) -> dict[str, TypedTool]:
        tools = dict(self._functions)
        for server in self._servers:
            for tool in server.tools():
                add_tool(tools, tool)
        return tools

    @cached_property
    def _new_calls(self) -> Callable[[], CallFormat]:
        return formats_of(self.format, self._tools, self.max_tool_tokens, self.sandbox)

    @cached_property
    def _judge(self) -> Judge:
        return judge_of(self.judge)

    @cached_property
    def _tasks(self) -> dict[Split, list[Task]]:
        tasks = read_tasks(self.path, self.test_share)
        everything = [task for split in tasks.values() for task in split]
        for reward in self._rewards:
            _check_tasks(reward, everything)
        return tasks

    def prepare(self) -> None:
        """Read the file, and check that a judge's server answers. Raise UserError on failure."""
        _ = self._tasks
        if any(reward.scorer == JUDGE for reward in self._rewards):
            _ = self._judge
        if self.tools:
            _ = self._new_calls
            for task in self._everything():
                check_calls(task, self._tools)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split. Raise UserError for an invalid row."""
        return self._tasks[split]

    def environment(self, task: Task) -> Environment:
        """Return a fresh episode on the task."""
        return self._episode(task, self._new_calls() if self.tools else None)

    def _episode(self, task: Task, calls: CallFormat | None) -> QuestionEpisode:
        return QuestionEpisode(self._grader(task), self._opening(task, calls), calls)

    def _grader(self, task: Task) -> Grader:
        return Grader(task, self._form, self._rewards)

    def _opening(self, task: Task, calls: CallFormat | None = None) -> list[Message]:
        if calls is None:
            return opening(task, self.system or INSTRUCTIONS[self._form])
        (told, *_) = calls.opening(self.system or TASK, question_of(task.data), "Work it out")
        return opening_with_tools(task, told)

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts `expert` and `constant`, if they are possible. The expert needs a right answer in every row, and
        writes it in the requested form. With tools, it also needs a column `calls` in every row, and makes these calls
        first. `constant` gives the same answer to every task (`_constant`). It is left out if a judge or an async
        function grades answers."""
        scripts = {"expert": self._solve} if self._has_expert else {}
        is_costly = any(reward.scorer == JUDGE or reward.is_async for reward in self._rewards)
        has_constant = self._has_answers and not is_costly
        return scripts | ({CONSTANT: self._repeat} if has_constant else {})

    @cached_property
    def _has_answers(self) -> bool:
        return any(references_of(task.data) for task in self._tasks["train"])

    @cached_property
    def _has_expert(self) -> bool:
        # Cached: each demonstration of a warm-up needs it, and a file may have a million rows.
        return all(
            references_of(task.data) and (not self.tools or task.data.get("calls")) for task in self._everything()
        )

    def _everything(self) -> Iterator[Task]:
        return (task for split in self._tasks.values() for task in split)

    def _solve(self, task: Task, seed: int) -> list[Message]:
        answer = references_of(task.data)[0]
        if not self.tools:
            return [*self._opening(task), self._reply_with(answer)]
        # A new factory, because a sandbox serves one event loop, and a script starts a new loop.
        calls = formats_of(self.format, self._tools, self.max_tool_tokens, self.sandbox)()
        replies = [calls.write_call(call["tool"], **call.get("arguments", {})) for call in task.data["calls"]]
        said = iter([*replies, self._reply_with(answer)["content"]])
        return converse(self._episode(task, calls), lambda: next(said, None))

    def _repeat(self, task: Task, seed: int) -> list[Message]:
        with self._lock:  # several scripts may run at once; only one computes `_constant`
            return [*self._opening(task), self._reply_with(self._constant)]

    @cached_property
    def _constant(self) -> str:
        """The best constant answer: the right answer with the highest total reward as the answer to every task. It is
        empty without right answers. Its reward is a baseline, because a policy can earn it without reading the
        question. A hash of the ids selects the tasks to grade."""
        tasks = sorted(self._tasks["train"], key=lambda task: hash_fraction(task.id))
        answers = Counter(references[0] for task in self._tasks["train"] if (references := references_of(task.data)))
        candidates = [answer for answer, _ in answers.most_common(NUM_CANDIDATES)]
        sums, began = dict.fromkeys(candidates, 0.0), time.monotonic()
        for task in tasks[:NUM_TASKS]:
            if time.monotonic() - began > BUDGET_S:
                break
            for answer in candidates:
                sums[answer] += self._score(task, answer)
        return max(candidates, key=sums.__getitem__, default="")

    def _score(self, task: Task, answer: str) -> float:
        try:
            return asyncio.run(self._grader(task).grade([self._reply_with(answer)])).reward
        except RolloutError:  # from a user's function; the episode raises it again
            return 0.0

    def _reply_with(self, answer: str) -> Message:
        is_tagged = self._form in ("lenient", "tag")
        return {"role": "assistant", "content": f"<answer>{answer}</answer>" if is_tagged else answer}

    def failure_kind(self, rollout: Rollout) -> str:
        """If the reply had no answer, return a text about this kind of failure. Otherwise return an empty text, so that
        the evaluation uses its own terms."""
        return "" if rollout.metrics.get("answered", 1.0) else "no answer in the form that was asked for"

    def offload(self) -> None:
        """Free the device memory of a judge that shares the policy's device."""
        if self.judge:
            self._judge.offload()


def _check_tasks(reward: Reward, tasks: Sequence[Task]) -> None:
    """Raise UserError for a task that a reward cannot grade, because a column or a usable right answer is missing."""
    columns = {name for task in tasks for name in task.data}
    if theirs := [name for name in reward.columns if name in TRAINER_ONLY and name not in columns]:
        raise UserError(
            f"reward `{reward.name}` needs `{theirs[0]}`, which only TRL's trainer passes. Give the parameter a "
            "default value, and let the function do without."
        )
    if missing := [name for name in reward.columns if name not in columns]:
        raise UserError(f"reward `{reward.name}` needs `{missing[0]}`, which no row has.{nearest(missing[0], columns)}")
    if not reward.scorer:
        return
    for task in tasks:
        column, given = reference_values(task.data)
        if reward.scorer != JUDGE and any(isinstance(one, dict) for one in given):
            raise UserError(
                f"reward `{reward.scorer}` compares with texts, and `{column}` of task `{task.id}` holds the object "
                f"{preview(given)}. Write the right answers into `{column}` as a text or a list of texts."
            )
        references = references_of(task.data)
        if not references:
            raise UserError(
                f"reward `{reward.scorer}` compares with right answers, and task `{task.id}` has none: give the row "
                "`answer`, `answers` or `reference`, or name a function of your own as `reward`."
            )
        is_read: dict[str, Callable[[str], object]] = {
            "number": lambda one: read_number(one) is not None,
            "match": lambda one: matches(one, [one]),
        }
        test = is_read.get(reward.scorer, str.strip)
        if wrong := [one for one in references if not test(one)]:
            raise UserError(
                f"reward `{reward.scorer}` cannot read the right answer {wrong[0]!r:.80} of task `{task.id}`, so no "
                f"reply could earn it. Correct the row, or take another of {', '.join([*SCORERS, JUDGE])}."
            )
