"""How soon does the viewer show a large run? One of 100,000 made-up rollouts is opened without an index and with one.

`uv run python -m benchmarks.speed.viewer`: the rollouts are written as a run writes them, about half a gigabyte in a
temporary directory. Then `slimrl view` is started as a user starts it, and asked over HTTP as its page asks: from the
start of the process to the first list while the index is being built, how fast that goes, the same with the index
there, and each kind of filter, every time with a value that was not asked for before. Memory is the peak of the server.

The page's own work in a browser is not in it.
"""

import argparse
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.types import Rollout

GROUP, GROUPS = 8, 32  # rollouts of a group, groups of a step
PROMPT, REPLY = 48, 80  # tokens
SYLLABLES = ["ka", "lo", "mi", "ren", "sta", "vu", "tor", "pel", "ina", "gor", "zet", "bri"]
FILTERS = ("reward", "metric", "drop", "task", "text", "text and reward", "groups", "sort")


def make_run(run: Path, num: int, rng: random.Random) -> None:
    """Write a run of `num` rollouts."""
    per_step = GROUP * GROUPS
    for step in range(-(-num // per_step)):
        records = [
            record for group in range(GROUPS) for record in make_group(step, f"train/{step * GROUPS + group:07d}", rng)
        ]
        write_rollouts(RunDir(run).rollouts_of(step), records[: num - step * per_step])
    metrics = ({"step": step, "reward/mean": rng.random()} for step in range(-(-num // per_step)))
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in metrics), encoding="utf-8")


def make_group(step: int, task: str, rng: random.Random) -> list[RolloutRecord]:
    """The rollouts of a task in a step. One group in five has no signal."""
    flat = rng.random() < 0.2
    rewards = [0.0 if flat else round(rng.random(), 3) for _ in range(GROUP)]
    mean = statistics.fmean(rewards)
    prompt = " ".join(make_word(rng) for _ in range(PROMPT))
    return [make_record(step, task, prompt, (reward, reward - mean), rng) for reward in rewards]


def make_record(step: int, task: str, prompt: str, earned: tuple[float, float], rng: random.Random) -> RolloutRecord:
    """A rollout of one turn with its reward and advantage. One in fifty failed."""
    reply = " ".join(make_word(rng) for _ in range(REPLY))
    num = PROMPT + REPLY
    failed = rng.random() < 0.02
    rollout = Rollout(
        task_id=task,
        token_ids_T=tuple(rng.randrange(49152) for _ in range(num)),
        loss_mask_T=(False,) * PROMPT + (True,) * REPLY,
        logprobs_T=(0.0,) * PROMPT + tuple(-rng.expovariate(2.0) for _ in range(REPLY)),
        versions_T=(-1,) * PROMPT + (step,) * REPLY,
        reward=float("nan") if failed else earned[0],
        turn_rewards=(earned[0],),
        messages=({"role": "user", "content": prompt}, {"role": "assistant", "content": reply}),
        metrics={"exact": float(earned[0] > 0.9), "turns": 1.0, "truncated": 0.0, "score": rng.random()},
        failure="timeout" if failed else "",
    )
    text = f"<|user|>{prompt}<|assistant|>{reply}"
    return RolloutRecord(rollout, (earned[1],), text, has_signal=earned[1] != 0.0)


def make_word(rng: random.Random) -> str:
    return "".join(rng.choices(SYLLABLES, k=3))


class Viewer:
    """A started `slimrl view`, asked over HTTP."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: Any) -> Any:
        with urlopen(f"{self._address}{path}?{urlencode(query)}" if query else f"{self._address}{path}") as answer:
            content = answer.read()
        return json.loads(content) if path.startswith("/api/") else content

    def first_list(self) -> None:
        """Ask for the page and the first list until both come."""
        while True:
            try:
                self.get("/")
                self.get("/api/runs")
                self.get("/api/runs/run/rollouts", sort="-reward", facets=1)
                return
            except ConnectionError:
                time.sleep(0.01)
            except OSError as error:
                if not isinstance(getattr(error, "reason", None), ConnectionError):
                    raise
                time.sleep(0.01)

    def timed(self, path: str, **query: Any) -> float:
        began = time.perf_counter()
        self.get(path, **query)
        return time.perf_counter() - began

    def until_indexed(self, num: int) -> float:
        """Seconds until all rollouts are in the index; meanwhile the longest time of an answer is kept."""
        began = time.perf_counter()
        self.longest_s = 0.0
        while True:
            self.longest_s = max(self.longest_s, self.timed("/api/runs/run/rollouts", sort="-reward"))
            state = self.get("/api/state")["runs"][0]
            if state["rollouts"] >= num and state["indexing"] is None:
                return time.perf_counter() - began
            time.sleep(0.2)

    def peak_mb(self) -> float:
        """The most memory that the server has taken so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else float("nan")


@contextmanager
def view(run: Path) -> Iterator[Viewer]:
    """A viewer of the run on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "slimrl", "view", str(run), "--port", str(port), "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield Viewer(process, port)
    finally:
        process.terminate()
        process.wait()


def question(kind: str, rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A question of a kind that nobody has asked before."""
    number = round(rng.uniform(0.5, 0.9), 6)
    rewarded = {"field": "reward", "op": ">", "value": number}
    worded = {"field": "text", "op": "has", "value": f"{make_word(rng)} {make_word(rng)}"}
    conditions = {
        "reward": [rewarded],
        "metric": [{"field": "metric.score", "op": "<", "value": number}],
        "drop": [{"field": "drop", "op": "=", "value": "timeout"}, {"field": "step", "op": ">", "value": number}],
        "task": [{"field": "task", "op": "has", "value": f"{rng.randrange(9999):04d}"}],
        "text": [worded],
        "text and reward": [worded, rewarded],
        "groups": [rewarded],
        "sort": [],
    }
    path = "/api/runs/run/groups" if kind == "groups" else "/api/runs/run/rollouts"
    sort = "-std" if kind == "groups" else f"metric.{rng.choice(['exact', 'score'])}" if kind == "sort" else "-reward"
    return path, {"where": json.dumps(conditions[kind]), "sort": sort, "offset": rng.randrange(50)}


def measure(run: Path, num: int, repetitions: int) -> dict[str, Any]:
    rng = random.Random(1)
    num_bytes = sum(path.stat().st_size for path in (run / "rollouts").glob("*.jsonl"))
    with view(run) as viewer:
        began = time.perf_counter()
        viewer.first_list()
        without_index_s = time.perf_counter() - began
        indexing_s = viewer.until_indexed(num)
        indexing = {
            "seconds": indexing_s,
            "mb_per_s": num_bytes / 2**20 / indexing_s,
            "longest_answer_s": viewer.longest_s,
            "peak_mb": viewer.peak_mb(),
        }
    with_index_s = []
    for _ in range(repetitions):
        with view(run) as viewer:
            began = time.perf_counter()
            viewer.first_list()
            with_index_s.append(time.perf_counter() - began)
    with view(run) as viewer:
        viewer.first_list()
        filters = {
            kind: [viewer.timed(path, **query) for path, query in (question(kind, rng) for _ in range(repetitions))]
            for kind in FILTERS
        }
        key = viewer.get("/api/runs/run/rollouts", offset=num // 2, limit=1)["rows"][0]["key"]
        filters["one rollout"] = [viewer.timed("/api/runs/run/rollout", key=key) for _ in range(repetitions)]
        peak_mb = viewer.peak_mb()
    index_mb = sum(path.stat().st_size for path in (run / ".view").iterdir()) / 2**20
    return {
        "rollouts": num,
        "files_mb": num_bytes / 2**20,
        "index_mb": index_mb,
        "first_list_without_index_s": without_index_s,
        "indexing": indexing,
        "first_list_s": with_index_s,
        "filters_s": filters,
        "peak_mb": peak_mb,
    }


def table(content: dict[str, Any]) -> str:
    indexing = content["indexing"]
    rows = [
        [
            f"start to first list, no index yet ({content['files_mb']:.0f} MB)",
            f"{content['first_list_without_index_s']:.2f} s",
        ],
        ["building the index", f"{indexing['seconds']:.0f} s, {indexing['mb_per_s']:.0f} MB/s"],
        ["longest answer meanwhile", f"{indexing['longest_answer_s']:.2f} s"],
        [f"start to first list, with the index ({content['index_mb']:.0f} MB)", _times(content["first_list_s"])],
        *(
            [f"filter: {kind}" if kind in FILTERS else kind, _times(times)]
            for kind, times in content["filters_s"].items()
        ),
        ["peak memory, indexing and then answering", f"{indexing['peak_mb']:.0f} MB, {content['peak_mb']:.0f} MB"],
    ]
    return markdown_table([f"{content['rollouts']:,} rollouts", "median (most)"], rows)


def _times(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({max(seconds):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=100_000, help="rollouts of the run")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where to make the run; a temporary directory by default")
    parser.add_argument("--output", type=Path, default=RESULTS / "viewer.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        run = Path(directory) / "run"
        make_run(run, arguments.num, random.Random(0))
        content = measure(run, arguments.num, arguments.repetitions)
    print(table(content))
    private = {str(arguments.directory): "DIRECTORY"} if arguments.directory else {}
    write_result(arguments.output, facts, content, private)


if __name__ == "__main__":
    main()
