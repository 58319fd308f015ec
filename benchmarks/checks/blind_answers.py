"""What answers earn that do not read the question: in all tasks of reasoning-gym and all games of TextArena.

`uv run --extra reasoning-gym --extra textarena python -m benchmarks.checks.blind_answers` writes
`benchmarks/results/blind_answers.json`. In reasoning-gym each answer is given to 100 questions: constants, numbers that
are none, words of the question, another question's answer, and the right answer with all of its digits or letters
replaced, which knows its form alone. In TextArena the first variant of each kind of game is taken: each reply is given
at every turn of 6 games, beside players at random and the game's script. After half a minute of a game no further reply
is tried; `replies` counts those that were. A game that takes two minutes, as one does whose step never ends, is given
up. What earns more than 0.3 is in `reasoning_gym/part.py` or
`textarena/taskset.py`.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, machine_facts, write_result
from slimrl.environments.find import load_taskset
from slimrl.environments.scripts import play_script
from slimrl.errors import RolloutError, UserError
from slimrl.rollout.answers import close_episode
from slimrl_envs.reasoning_gym.part import Item, Part, task_names

NUM_QUESTIONS, NUM_GAMES, MAX_TURNS, GAME_S, MAX_GAME_S = 100, 6, 60, 30.0, 120.0
CONSTANTS = (
    "0", "1", "2", "3", "-1", "0.5", "10", "100", "yes", "no", "Yes", "No", "True", "False", "A", "B", "C", "a", "the",
    "None", "[]", "[0]", "[[0]]", "()", "-", "x", "0 0", "0 1", "0, 0", "1, 2, 3", "1/2", "left", "right", "north", "",
    "nan", "inf", "-inf", "1e999", "nan+nanj", "NaN", "1_0", "٣", "0x10", "\\boxed{}", "{}", '{"a": 0}', "abc",
)  # fmt: skip
WORD = re.compile(r"\w+")
PLACE = re.compile(r"/[^\s'\"]*/site-packages/")  # differs from machine to machine
Blind = Callable[[Item, list[Item]], str]


def _always(text: str) -> Blind:
    return lambda item, items: text


BLIND: dict[str, Blind] = {
    **{repr(text): _always(text) for text in CONSTANTS},
    "the question": lambda item, items: item["question"],
    "its first number": lambda item, items: (re.findall(r"-?\d+", item["question"]) or ["0"])[0],
    "its last number": lambda item, items: (re.findall(r"-?\d+", item["question"]) or ["0"])[-1],
    "its largest number": lambda item, items: max(re.findall(r"\d+", item["question"]) or ["0"], key=int),
    "its first word": lambda item, items: (WORD.findall(item["question"]) or [""])[0],
    "its last word": lambda item, items: (WORD.findall(item["question"]) or [""])[-1],
    "its last line": lambda item, items: item["question"].strip().rpartition("\n")[2],
    "the commonest answer": lambda item, items: Counter(one["answer"] for one in items).most_common(1)[0][0],
    "another's answer": lambda item, items: items[(items.index(item) + 1) % len(items)]["answer"],
    "the first one's answer": lambda item, items: items[0]["answer"],
    "0 for each digit": lambda item, items: _mask(item["answer"], r"\d", "0"),
    "1 for each digit": lambda item, items: _mask(item["answer"], r"\d", "1"),
    "0 for each number": lambda item, items: _mask(item["answer"], r"\d+", "0"),
    "a for each letter": lambda item, items: _mask(item["answer"], r"[A-Za-z]", "a"),
    "the commonest character": lambda item, items: _mask(item["answer"], r"\w", _commonest(items)),
}
REPLIES = ("[0]", "[1]", "[2]", "[4]", "[0 0]", "[1 1]", "[A]", "[B]", "[a]", "[pass]", "[accept]", "[deny]",
           "[defect]", "[cooperate]", "[submit]", "[done]", "[up]", "[right]", "[crane]", "[call]", "[fold]",
           "[]", "", "yes", "no", "[1, 2, 3]", "[bid: 1]", "[0] [1]")  # fmt: skip
Row = dict[str, Any]


def _mask(answer: str, pattern: str, instead: str) -> str:
    """The form of an answer without its content; empty where the pattern leaves letters or digits as they are."""
    masked = re.sub(pattern, instead, answer)
    return "" if masked == answer or re.search(r"\w", re.sub(pattern, "", answer)) else masked


def _commonest(items: list[Item]) -> str:
    text = re.sub(r"\W", "", "".join(item["answer"] for item in items)) or "0"
    return max(set(text), key=text.count)


def try_task(name: str, num: int) -> Row:
    """The blind answers that earn most in a task of reasoning-gym, by their mean score and by their full scores."""
    began = time.monotonic()
    part = Part(name, {}, 0, {"train": num, "validation": 0, "test": 0})
    items = part.items("train")
    scores: dict[str, list[float]] = {}
    for kind, make in BLIND.items():
        with contextlib.suppress(RolloutError):
            given = [(make(item, items), item) for item in items]
            if sum(bool(answer) for answer, _ in given) > len(items) // 2:
                scores[kind] = [part.score(answer, item) for answer, item in given if answer]
    means = {kind: statistics.mean(values) for kind, values in scores.items() if values}
    exact = {kind: statistics.mean(value >= 1 for value in values) for kind, values in scores.items() if values}
    best, best_exact = max(means, key=means.__getitem__), max(exact, key=exact.__getitem__)
    return {
        "questions": len(items),
        "best": best,
        "reward": round(means[best], 3),
        "best_exact": best_exact,
        "exact": round(exact[best_exact], 3),
        "seconds": round(time.monotonic() - began, 1),
    }


def try_game(name: str) -> Row:
    """What fixed replies, a player at random and the game's script earn in a game of TextArena, on average."""
    began = time.monotonic()
    taskset = load_taskset(f"textarena:{name}", {"num_train": NUM_GAMES, "num_test": 1})
    tasks = taskset.tasks("train")

    async def play(task: Any, reply: str) -> float:
        episode = taskset.environment(task)
        try:
            await episode.start()
            for _ in range(MAX_TURNS):
                turn = await episode.step(reply)
                if turn.done:
                    return float(turn.reward)
            return 0.0
        finally:
            await close_episode(episode)

    def script(task: Any, which: str) -> float:
        said = [m["content"] for m in play_script(taskset, which, task, 0) if m["role"] == "assistant"]

        async def replay() -> float:
            episode = taskset.environment(task)
            await episode.start()
            for reply in said:
                turn = await episode.step(reply)
            await close_episode(episode)
            return float(turn.reward)

        return asyncio.run(replay())

    earned: dict[str, float] = {}
    for reply in REPLIES:
        if time.monotonic() - began > GAME_S:
            break
        with contextlib.suppress(RolloutError, Exception):
            earned[reply] = statistics.mean(asyncio.run(play(task, reply)) for task in tasks)
    scripts = {}
    for which in taskset.scripts:
        with contextlib.suppress(RolloutError, UserError, Exception):
            scripts[which] = round(statistics.mean(script(task, which) for task in tasks), 3)
    best = max(earned, key=earned.__getitem__) if earned else ""
    return {"best": best, "reward": round(earned.get(best, 0.0), 3), "replies": len(earned), **scripts}


def main() -> None:
    """Try all, or those that are named, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=NUM_QUESTIONS, help="of each task; some take seconds to make")
    parser.add_argument("names", nargs="*", help="tasks, or games such as Bandit-v0; all by default")
    arguments = parser.parse_args()
    names: list[str] = arguments.names
    path = RESULTS / "blind_answers.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found: dict[str, dict[str, Row]] = {kind: content.get(kind, {}) for kind in ("reasoning_gym", "textarena")}
    registry: Any = importlib.import_module("textarena.envs.registration")
    games = {one: spec for one, spec in registry.ENV_REGISTRY.items() if not one.endswith(("-raw", "-train"))}
    first_of_kind = {spec.entry_point: one for one, spec in reversed(games.items())}
    facts = machine_facts()
    for name in names or [*task_names(), *sorted(first_of_kind.values())]:
        kind = "textarena" if name in games else "reasoning_gym"
        if not names and name in found[kind]:
            continue
        try:
            if not names and name in games:
                found[kind][name] = _try_apart(name, path)
            else:
                found[kind][name] = try_game(name) if name in games else try_task(name, arguments.questions)
        except (UserError, RolloutError) as error:
            found[kind][name] = {"error": PLACE.sub("", str(error))[:160]}
        print(name, found[kind][name], flush=True)
        write_result(path, facts, found, {})


def _try_apart(name: str, path: Path) -> Row:
    """The row of a game that a process of its own plays and writes."""
    try:
        subprocess.run(
            [sys.executable, "-m", __spec__.name, name], stdout=subprocess.DEVNULL, timeout=MAX_GAME_S, check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        return {"error": f"given up: {type(error).__name__} within {MAX_GAME_S:.0f} s"}
    row: Row = json.loads(path.read_text(encoding="utf-8"))["textarena"][name]
    return row


if __name__ == "__main__":
    main()
