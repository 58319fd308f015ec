"""Does BFCL's own scorer agree with the rewards of `bfcl:CATEGORY`, task by task?

`uv run python -m benchmarks.checks.bfcl_scorer outputs/my_eval`: reads the episodes that `slimrl eval` has recorded,
and scores each with the functions of bfcl-eval's `eval_runner`, its own data and its own execution of calls. The exit
status is 1 if a task is scored otherwise. The package is needed without its requirements (docs/bfcl.md).

BFCL executes a call as Python code. Here it gets only calls of the task's functions, with identifiers as names and JSON
values as arguments.
"""

import argparse
import itertools
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.harness.measure import markdown_table
from slimrl.config.reading.saved import read_flat_settings
from slimrl.eval.episodes import read_episodes
from slimrl.io.run_dir import RunDir
from slimrl.models.chat.call_reader import CallReader
from slimrl.stats import estimate_mean
from slimrl.types import Rollout, StopReason
from slimrl_envs.bfcl.calls import Call, read_calls
from slimrl_envs.bfcl.multi_turn import MAX_STEPS, split_steps
from slimrl_envs.bfcl.package import CHECKERS, MODEL, ast_checker, load_with
from slimrl_envs.bfcl.single_turn import IRRELEVANCE
from slimrl_envs.bfcl.taskset import MULTI, SINGLE

COUNTER = itertools.count()


class Decoder:
    """A handler of a model in BFCL's terms, whose outputs are lists of calls. `functions` are the names of the task's
    functions."""

    def __init__(self, functions: set[str]) -> None:
        self._functions = functions

    def decode_ast(self, calls: list[Call], *_: Any, **__: Any) -> list[dict[str, Any]]:
        return [{name: arguments} for name, arguments in calls]

    def decode_execute(self, calls: list[Call], **_: Any) -> list[str]:
        return [self._code_of(*call) for call in calls]

    def _code_of(self, name: str, arguments: dict[str, Any]) -> str:
        if name not in self._functions or not all(key.isidentifier() for key in arguments):
            return "no_such_function()"  # BFCL reports a NameError to the model
        return f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"


@cache
def runner() -> dict[str, Any]:
    """BFCL's `eval_runner`, without tables for its leaderboard and without clients of vendors."""
    empty = SimpleNamespace()
    stand_ins = {
        "bfcl_eval.constants.model_config": SimpleNamespace(MODEL_CONFIG_MAPPING={}),
        "bfcl_eval.eval_checker.eval_runner_helper": empty,
        "bfcl_eval.eval_checker.ast_eval.ast_checker": SimpleNamespace(ast_checker=ast_checker()),
        "bfcl_eval.model_handler.base_handler": SimpleNamespace(BaseHandler=object),
        "bfcl_eval.model_handler.utils": SimpleNamespace(parse_prompt_variation_params=None),
        "dotenv": SimpleNamespace(load_dotenv=None),
    }
    return load_with(f"{CHECKERS}.eval_runner", stand_ins)


@cache
def data_of(category: str) -> dict[str, tuple[dict[str, Any], Any]]:
    """The prompts and right answers of a category by id, read by BFCL's own functions."""
    prompts = runner()["load_dataset_entry"](category, include_prereq=False, include_language_specific_hint=False)
    if category == IRRELEVANCE:
        return {one["id"]: (one, None) for one in prompts}
    truths = runner()["load_ground_truth_entry"](category)
    return {one["id"]: (one, truth["ground_truth"]) for one, truth in zip(prompts, truths, strict=True)}


def functions_of(category: str, id: str) -> set[str]:
    """The names of a task's functions."""
    prompt, _ = data_of(category)[id]
    later = [one for functions in prompt.get("missed_function", {}).values() for one in functions]
    return {one["name"] for one in [*prompt["function"], *later]}


def score(category: str, id: str, rollout: Rollout, replies: list[str]) -> bool:
    """BFCL's verdict on an episode. `replies` have the calls in tags."""
    prompt, truth = data_of(category)[id]
    names, decoder = runner(), Decoder(functions_of(category, id))
    prompt = dict(prompt)  # a scorer deletes the functions
    if category in MULTI:
        turns = split_steps(replies, len(truth))
        if rollout.stop_reason is not StopReason.DONE or len(turns[-1]) > MAX_STEPS:
            turns.pop()  # the policy never ended this turn
        steps = [[*turn, []] for turn in turns]  # a turn ends with a reply without calls
        # BFCL keeps the simulated APIs in global variables that are named after the model and the task.
        result = names["_evaluate_single_multi_turn_entry"](
            decoder, id, steps, truth, prompt, f"{MODEL}{next(COUNTER)}", category
        )
    elif category == IRRELEVANCE:
        calls = read_calls(replies[0])
        result = names["_evaluate_single_relevance_entry"](decoder, id, calls, prompt, MODEL, category)
    else:
        calls, python = read_calls(replies[0]), (names["Language"].PYTHON, names["ReturnFormat"].PYTHON)
        result = names["_evaluate_single_ast_entry"](decoder, id, calls, truth, prompt, MODEL, category, *python)
    return bool(result["valid"])


def episodes_in(run: Path) -> Iterator[tuple[str, str, Rollout]]:
    """The file, the category and the episode of each finished episode on a task of BFCL."""
    for path in sorted(RunDir(run).held_out.glob("*.jsonl")):
        for rollout in read_episodes(path).values():
            category = rollout.task_data.get("category")
            if category in SINGLE + MULTI and not rollout.failure:
                yield path.name, category, rollout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the output_dir of `slimrl eval`")
    arguments = parser.parse_args()
    verdicts: dict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    reader = CallReader(setting=read_flat_settings(arguments.run, "eval").get("model.tool_calls", "template"))
    disagreed, num_unread = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["BFCL_PROJECT_ROOT"] = scratch  # its modules make directories when they are imported
        for file, category, rollout in episodes_in(arguments.run):
            id = rollout.task_id.rpartition("/")[2]
            replies = replies_of(rollout, reader, functions_of(category, id))
            if sum(len(read_calls(reply)) for reply in replies) != rollout.metrics["calls"]:
                num_unread += 1
                continue
            ours, theirs = rollout.metrics["correct"] == 1.0, score(category, id, rollout, replies)
            verdicts[file, category].append((ours, theirs))
            if ours != theirs:
                disagreed.append(f"{file}: {id} is {'right' if theirs else 'wrong'} for BFCL")
    rows = [[*key, str(len(found)), *map(accuracy, zip(*found, strict=True))] for key, found in verdicts.items()]
    print(markdown_table(["episodes of", "category", "tasks", "slimrl", "BFCL"], rows))
    print("\n".join(disagreed) or "no task is scored otherwise")
    if num_unread:
        print(
            f"{num_unread} episodes are left out: they have calls in a form that is read with their chat template alone"
        )
    return int(bool(disagreed) or not rows)


def replies_of(rollout: Rollout, reader: CallReader, functions: set[str]) -> list[str]:
    """The policy's replies, whose calls are rewritten as the environment read them."""
    replies = [message["content"] for message in rollout.messages if message["role"] == "assistant"]
    return [reader.rewrite(reply, reader.read(reply, functions)) for reply in replies]


def accuracy(verdicts: Sequence[bool]) -> str:
    found = estimate_mean([float(one) for one in verdicts])
    return f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"


if __name__ == "__main__":
    sys.exit(main())
