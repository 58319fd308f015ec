"""A taskset in a worker process is the taskset: the same answers, errors and order, and a process that goes with it."""

import asyncio
import dataclasses
import gc
import math
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slimrl.environments.find import failure_kind_of, load_taskset, prepare_taskset, tasks_of
from slimrl.environments.scripts import play_script
from slimrl.errors import UserError
from slimrl.io.process_tree import processes
from slimrl.rollout.episode import EpisodeSpec, run_episode
from slimrl.rollout.games import run_groups, self_play_specs
from slimrl.rollout.loop import run_episodes
from slimrl.rollout.worker.process import QUESTIONS, Source
from slimrl.rollout.worker.taskset import load_in_worker
from slimrl.types import Rollout, SamplingParams, Task
from tests.rollout.scripted import DigitClient, make_context

FILE = Path(__file__).with_name("market.py")


def load(name: str = "Market", timeout_s: float = 20.0, file: Path = FILE, **args: Any) -> Any:
    source = Source(f"{file}:{name}", args, timeout_s)
    return load_in_worker(source)


def play(taskset: Any, num: int = 8, timeout_s: float = 20.0) -> list[Rollout]:
    context = make_context(DigitClient(), timeout_s=timeout_s)
    games = [
        self_play_specs(EpisodeSpec(taskset, task, SamplingParams(max_tokens=5, seed=1000 * n)))
        for n, task in enumerate(tasks_of(taskset, "train")[:num])
    ]
    return [rollout for game in run_episodes(run_groups(games, context)) for rollout in game]


def workers() -> list[int]:
    gc.collect()  # a taskset that is no longer used ends its processes
    return [pid for pid, one in processes().items() if one.parent == os.getpid() and not one.ended]


def kill_worker(remote: Any) -> None:
    os.kill(remote._seats[0].running().pid, signal.SIGKILL)
    while remote._seats[0].running():
        time.sleep(0.005)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "scripts", "roles"), [("Market", [], []), ("Full", ["expert", "odd"], ["buyer", "seller"])]
)
def test_a_taskset_in_a_worker_is_that_of_the_runs_own_process(name: str, scripts: list[str], roles: list[str]) -> None:
    remote, here = load(name), load_taskset(f"{FILE}:{name}", {})
    remote.begin_step("a")
    ours, theirs = play(here), play(remote)
    assert [one.token_ids_T for one in ours] == [one.token_ids_T for one in theirs]
    assert [one.messages for one in ours] == [one.messages for one in theirs]
    assert [one.failure for one in theirs] == [""] * len(ours)
    assert name == "Market" or ours == theirs
    assert (remote.class_name, remote.purpose) == (here.class_name, here.purpose)
    assert here.class_name == name and here.purpose.startswith("Sells things")
    assert list(remote.scripts) == list(here.scripts) == scripts
    assert list(remote.roles) == list(here.roles) == roles


def test_scripts_kinds_of_failure_and_tasks_come_through(capsys: pytest.CaptureFixture[str]) -> None:
    remote, here = load("Full"), load_taskset(f"{FILE}:Full", {})
    prepare_taskset(remote)
    tasks = tasks_of(remote, "test")
    assert [(task.id, task.data["n"]) for task in tasks] == [(task.id, task.data["n"]) for task in here.tasks("test")]
    assert play_script(remote, "expert", tasks[5], 7) == play_script(here, "expert", here.tasks("test")[5], 7)
    with pytest.raises(UserError) as theirs:
        play_script(remote, "odd", tasks[0], 0)
    with pytest.raises(UserError) as ours:
        play_script(here, "odd", tasks[0], 0)
    assert str(ours.value) == str(theirs.value)
    rollout = Rollout("t", (), (), (), (), 0.5, metrics={"turns": 3.0})
    assert failure_kind_of(remote, rollout) == failure_kind_of(here, rollout) == "earned 0.5 in 3"
    remote.offload()
    del remote, theirs  # whose traceback knows it
    gc.collect()
    assert capsys.readouterr().err == "prepared\noffloaded\n"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Market", {"hwo": "x"}),
        ("Market", {"wait_s": "x"}),
        ("Market", {"how": "refused"}),
        ("Market", {"how": "raises"}),
        ("Markt", {}),
        ("imported_in", {}),
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(name: str, args: dict[str, Any]) -> None:
    with pytest.raises(UserError) as ours:
        load_taskset(f"{FILE}:{name}", args)
    with pytest.raises(UserError) as theirs:
        load(name, **args)
    assert str(theirs.value) == str(ours.value)


def test_tasks_that_are_refused_are_refused_in_the_same_words() -> None:
    for make in (load, lambda **args: load_taskset(f"{FILE}:Market", args)):
        with pytest.raises(UserError, match=r"Market\.tasks\('train'\) gives two tasks with the id `0`"):
            tasks_of(make(how="twice"), "train")


def test_failures_keep_their_reason_and_mistakes_of_settings_end_the_run() -> None:
    (rollout,) = play(load(how="judge"), 1)
    assert (rollout.failure, rollout.failure_detail) == ("judge_error", "no verdict")
    with pytest.raises(UserError, match=r"set `args\.judge`"):
        play(load(how="setting"), 1)


def test_episodes_wait_at_the_same_time() -> None:
    remote = load(wait_s=0.5)
    began = time.monotonic()
    assert [one.failure for one in play(remote, 4)] == [""] * 4
    assert 1.5 <= time.monotonic() - began < 5.5  # 6 s one after another: three turns, and four episodes at once


def test_an_episode_that_waits_too_long_is_a_drop_and_its_process_goes_on() -> None:
    remote, before = load(wait_s=5.0, timeout_s=0.2), workers()
    assert [one.failure for one in play(remote, 4, timeout_s=0.2)] == ["timeout"] * 4
    assert workers() == before


@pytest.mark.parametrize(
    ("how", "num", "shown"),
    [
        ("closes", 2, r"(closed train/[01]\n){2}"),
        ("prints", 1, r"(sold \d\\x1b\[2J\n){3}"),  # no command reaches the terminal
    ],
)
def test_an_episode_is_closed_and_its_output_is_shown(
    how: str, num: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = load(how=how)
    play(remote, num)
    del remote
    assert re.fullmatch(shown, capsys.readouterr().err)


def test_random_numbers_depend_on_the_seed_alone() -> None:
    def rewards(remote: Any, seed: str) -> list[float]:
        remote.begin_step(seed)
        return [one.reward for one in play(remote)]

    first, again = load(), load()
    drawn = rewards(first, "rl/0/0"), rewards(first, "rl/0/1")
    assert drawn[0] != drawn[1]
    assert rewards(again, "rl/0/1") == drawn[1]  # as in a run that is resumed at step 1


def test_an_evaluation_does_not_change_the_numbers_of_episodes_in_flight() -> None:
    async def earn(remote: Any, *later: str) -> float:
        remote.begin_step("rl/0/0")
        episode = remote.environment(tasks_of(remote, "train")[0])
        await episode.start()
        for seed in later:
            remote.begin_step(seed)
        return [await episode.step("1") for _ in range(3)][-1].reward

    assert asyncio.run(earn(load())) == asyncio.run(earn(load(), "eval/0"))


def test_a_limit_that_cuts_an_episode_off_is_scored_in_the_worker() -> None:
    scored, unscored = load("Scored"), load()
    context = make_context(DigitClient(), max_turns=2)
    for remote, reward in ((scored, 0.25 - 3.0), (unscored, 0.25)):
        spec = EpisodeSpec(remote, tasks_of(remote, "train")[0], SamplingParams(max_tokens=5))
        assert run_episodes(run_episode(spec, context)).reward == reward


def test_a_process_that_ends_costs_one_episode_though_all_had_several_turns() -> None:
    rollouts = play(load(how="one in seven"), 16)
    assert [n for n, one in enumerate(rollouts) if one.failure] == [3, 10]
    assert {one.failure for one in rollouts} == {"", "environment_died"}


def test_two_threads_that_find_a_process_ended_start_one() -> None:
    before = set(workers())
    remote = load()
    task = tasks_of(remote, "train")[0]
    for _ in range(3):
        kill_worker(remote)
        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(lambda _: asyncio.run(remote.environment(task).start()), range(2)))
        assert len(set(workers()) - before) == 1


def test_large_tasks_come_page_by_page_and_one_that_no_message_holds_is_refused() -> None:
    remote = load("Exam", num_tasks=300, size=150_000)
    assert [task.id for task in tasks_of(remote, "train")] == [f"train/{n}" for n in range(300)]
    assert [rollout.reward for rollout in play(remote, 1)] == [1.0]
    with pytest.raises(UserError, match=r"task `train/0` has 17\.0 MB of data.*at most 16\.8 MB\. Keep large data"):
        tasks_of(load("Exam", size=17_000_000), "train")


def test_kinds_of_failure_see_the_task_and_the_rollouts_whole() -> None:
    remote, here = load("Exam", size=3_000), load_taskset(f"{FILE}:Exam", {"size": 3_000})
    (played,) = play(here, 1)
    odd = {"odd": math.nan, "large": math.inf, "small": -math.inf}
    rollout = dataclasses.replace(played, metrics={**played.metrics, **odd}, env_s=(0.123456789, 1.0))
    tasks_of(remote, "train")
    assert failure_kind_of(remote, rollout) == failure_kind_of(here, rollout) == "passes 200 of 200 tests"


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """One second for scripts and preparations, and a log message after a fifth of it."""
    monkeypatch.setattr("slimrl.rollout.worker.process.NOTICE_S", 0.2)
    for do in ("script", "prepare"):
        monkeypatch.setitem(QUESTIONS, do, (QUESTIONS[do][0], 1.0))


NOTICE = r"waiting since \d\d:\d\d:\d\d for environment `.*Hangs` to {} \(process \d+; at most 1 s\)"


@pytest.mark.usefixtures("second")
def test_an_expert_that_hangs_is_named_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    remote = load("Hangs", timeout_s=0.4)
    with pytest.raises(UserError, match=r"Hangs\.scripts\['expert'\]\(0\) failed: .* gave no answer for 1 s"):
        play_script(remote, "expert", Task("0", {}), 0)
    assert re.search(NOTICE.format("play a script"), capsys.readouterr().err)


@pytest.mark.usefixtures("second")
def test_a_preparation_that_hangs_is_named_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"could not be prepared: .* gave no answer for 1 s .* process was ended\.$"):
        prepare_taskset(load("Hangs", timeout_s=0.4, num_prepared=0))
    assert re.search(NOTICE.format("be prepared"), capsys.readouterr().err)


@pytest.mark.usefixtures("second")
def test_a_preparation_that_hangs_in_the_next_process_is_waited_for_once_in_a_step(tmp_path: Path) -> None:
    remote = load("Hangs", timeout_s=0.4, path=str(tmp_path / "prepared"))
    prepare_taskset(remote)
    tasks_of(remote, "train")
    kill_worker(remote)
    began = time.monotonic()
    details = [rollout.failure_detail for rollout in play(remote, 4) if rollout.failure == "environment_died"]
    assert len(details) == 4 and len(set(details)) == 1 and "could not be prepared" in details[0]
    assert 1.0 <= time.monotonic() - began < 10.0


def test_a_class_without_kinds_of_failure_is_not_asked_for_them() -> None:
    remote = load()
    kill_worker(remote)
    (rollout, *_) = play(load_taskset(f"{FILE}:Market", {}), 1)
    assert failure_kind_of(remote, rollout) == "" and not remote._seats[0].running()
    remote.offload()
    assert not remote._seats[0].running()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(0)", "ended its process with exit status 0"),
        ("import os; os.kill(os.getpid(), 11)", "ended by SIGSEGV"),
        ("while True: pass", r"gave no answer for 0\.\d s .*, and its process was ended\. What takes long"),
        ("raise GeneratorExit", "failed to load: GeneratorExit"),
    ],
)
def test_a_file_that_does_not_load_ends_nothing_but_its_process(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "while" in code:
        monkeypatch.setitem(QUESTIONS, "load", ("be made", 0.5))
    (tmp_path / "own.py").write_text(code)
    with pytest.raises(UserError, match=said):
        load("Own", timeout_s=0.2, file=tmp_path / "own.py")


def test_a_process_goes_with_its_taskset() -> None:
    before = workers()
    remote = load()
    assert len(workers()) == len(before) + 1
    del remote
    assert workers() == before


def test_a_process_goes_with_a_run_that_is_killed() -> None:
    program = (
        "import time; from slimrl.rollout.worker.process import Source; from slimrl.rollout.worker.taskset import "
        f"load_in_worker; taskset = load_in_worker(Source('{FILE}:Market', {{}}, 9.0)); "
        "print(taskset._seats[0].process().pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        worker = int(run.stdout.readline())
        assert not processes(worker)[worker].ended
        run.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while (left := processes(worker).get(worker)) and not left.ended:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_an_interrupted_run_cancels_its_episodes() -> None:
    remote = load(how="closes", wait_s=30.0)
    context = make_context(DigitClient())
    spec = EpisodeSpec(remote, Task("train/0", {"n": 0, "pair": [0, 0]}), SamplingParams(max_tokens=5))

    async def interrupted() -> None:
        tasks_of(remote, "train")
        playing = asyncio.create_task(run_groups([[spec]], context))
        await asyncio.sleep(0.1)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    began = time.monotonic()
    run_episodes(interrupted())
    assert time.monotonic() - began < 20
    assert [one.failure for one in play(remote, 1, timeout_s=0.1)] == ["timeout"]


def test_the_run_itself_does_not_import_the_file() -> None:
    load()
    program = f"""
import sys
from slimrl.config.rollout import EnvConfig
from slimrl.launch.tasksets import load_tasksets
load_tasksets([EnvConfig(id="{FILE}:Market")], 9.0)
print([name for name in sys.modules if "market" in name or name == "torch"])
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
