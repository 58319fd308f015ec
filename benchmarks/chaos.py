"""Does a run on a cluster survive whatever happens to it? One long run, and thirty kills at random.

`python -m benchmarks.chaos --runs DIR` (as root: it makes network namespaces): four nodes with a network of their own
each train a small random model on questions that a judge grades, with two trainer ranks, two samplers and two worker
processes of environments, at `max_async_level = 2`. Killed are programs of every kind, worker processes, Ray's actors,
whole nodes, the head, and `rl` itself; besides, cables are cut and mended, the disk of the run is filled, and the judge
is stopped for a while. After each the run must train on, or end with a cause that it says, after which it is resumed.
At the end its accounts are added up. Writes `benchmarks/results/chaos.json`; 25 minutes on two cores.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.checks.kills import check
from benchmarks.harness.cluster_run import ClusterRun
from benchmarks.harness.measure import RESULTS, machine_facts, write_result
from benchmarks.harness.namespaces import SUBNET, Network
from slimrl.io.process_tree import start_time
from slimrl.models.resolve import resolve

NODES = 4
JUDGE_PORT = 9000
DISK_MB = 600  # of the run's directory
PATIENCE_S = 400.0  # for the next step after something has happened
# A second of network less is no reason for anything; a minute is, for Ray.
SHORT_CUT_S, LONG_CUT_S, JUDGE_S = 4.0, 75.0, 20.0
VICTIMS = {
    "trainer": 4, "trainer-1": 3, "orchestrator": 4, "sampler-0": 3, "sampler-1": 2,
    "environment": 3, "actor": 2, "node": 2, "rl": 2, "head": 1,
}  # fmt: skip
EVENTS = ("short cut", "long cut", "disk", "judge")
SETTINGS = {
    "seq_len": 160,
    "max_async_level": 2,
    "orchestrator.batch_size": 16,
    "orchestrator.rollouts_per_example": 4,
    "orchestrator.sampling.max_tokens": 16,
    "trainer.loss.type": "reinforce",  # a model that earns nothing: its baseline still gives a signal
    "trainer.optim.lr": 1e-6,
    "eval.num_examples": 4,
    "ckpt.interval_steps": 3,
    "ckpt.keep": 2,
    "model.num_threads": 1,
    "deployment.type": "ray",
    "deployment.address": f"{SUBNET}.1:6379",
    "deployment.num_samplers": 2,
    "deployment.num_trainers": 2,
    "deployment.num_workers": 2,
    "deployment.cpus": 0.6,
    "deployment.restarts": 6,
    "plan": "off",
}
JUDGE = f"""
import http.server, json
class Judge(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        verdict = "yes" if sum(asked) % 2 else "no"
        choice = {{"index": 0, "finish_reason": "stop", "message": {{"role": "assistant", "content": verdict}}}}
        body = json.dumps({{"id": "1", "object": "chat.completion", "model": "judge", "choices": [choice]}}).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # who asked has not waited
            pass
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("{SUBNET}.1", {JUDGE_PORT}), Judge).serve_forever()
"""


class Chaos:
    """The run, its cluster and its judge, and what was done to them."""

    def __init__(self, network: Network, output_dir: Path, settings: dict[str, Any]) -> None:
        self._network, self._output_dir, self._settings = network, output_dir, settings
        self._rng = random.Random(0)
        self._judge = self._start_judge()
        self.run = self._start()
        self.record: list[dict[str, Any]] = []

    def do(self, what: str) -> None:
        """Do one thing, see that the run trains on or says why it does not, and keep what came of it."""
        self.run.await_that(lambda: self.run.num_steps() >= 1, PATIENCE_S)
        time.sleep(self._rng.uniform(0.0, 6.0))
        began, num_said = time.monotonic(), len(self.run.said)
        undo = self._actions(what)
        step = self.run.num_steps()
        entry: dict[str, Any] = {"what": what, "at_step": step}
        while self.run.num_steps() <= step + 1:
            if self.run.process.poll() is not None:
                said = self.run.said[num_said:].replace(str(self._output_dir.parent), "RUNS")
                entry["ended_with"] = causes(said)
                undo()
                undo = lambda: None  # noqa: E731
                self.run = self._start(resume=True)
            if time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"after {what} nothing was trained for {PATIENCE_S:g} s:\n{self.run.said[-6000:]}")
            time.sleep(0.2)
        undo()
        entry["trained_after_s"] = round(time.monotonic() - began, 1)
        print(entry, flush=True)
        self.record.append(entry)

    def _start_judge(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._network.inside([sys.executable, "-c", JUDGE]))

    def _start(self, resume: bool = False) -> ClusterRun:
        words = ["--resume"] if resume else []
        return start(self._output_dir, self._settings, self._network, words)

    def _actions(self, what: str) -> Callable[[], None]:
        """Do it, and give what undoes it."""
        match what:
            case "environment":
                self._kill(self._rng.choice(marked()))
            case "actor":
                self._kill(self._rng.choice(pids_called("ray::ProgramHost")))
            case "node":
                number = self._rng.randrange(1, NODES + 1)
                self._network.cut_power(number)
                return lambda: self._network.start_node(number)
            case "rl":
                self.run.kill()
            case "head":
                self._network.lose_head()
                self._judge.wait()
                self._judge = self._start_judge()
                self.run.process.wait()
            case "short cut" | "long cut":
                return self._cut(SHORT_CUT_S if what == "short cut" else LONG_CUT_S)
            case "disk":
                return self._fill_disk()
            case "judge":
                self._judge.send_signal(signal.SIGSTOP)
                time.sleep(JUDGE_S)
                self._judge.send_signal(signal.SIGCONT)
            case name:
                self._kill(self.run.pid(name))
        return lambda: None

    def _cut(self, seconds: float) -> Callable[[], None]:
        number = self._rng.randrange(1, NODES + 1)
        self._network.cut_cable(number)
        time.sleep(seconds)
        self._network.mend_cable(number)

        def start_again() -> None:
            time.sleep(5)
            if self._network.is_empty(number):  # Ray has given the node up, which has ended itself
                self._network.start_node(number)

        return start_again

    def _fill_disk(self) -> Callable[[], None]:
        filler = self._output_dir.parent / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
            except OSError:
                pass
        return lambda: filler.unlink(missing_ok=True)

    def _kill(self, pid: int) -> None:
        if start_time(pid):
            os.kill(pid, signal.SIGKILL)


def causes(said: str) -> list[str]:
    """What a run and its parts have said of why they ended, each once."""
    lines = [line[line.index("slimrl: ") :][:300] for line in said.splitlines() if "slimrl: " in line]
    return [*dict.fromkeys(lines)]


def start(output_dir: Path, settings: dict[str, Any], network: Network, words: Sequence[str]) -> ClusterRun:
    """A start of the run, whose output is kept where the disk does not run full."""
    return ClusterRun(output_dir, settings, network.inside, words, output_dir.parent.with_suffix(".log"))


def marked() -> list[int]:
    """The worker processes of environments."""
    return [pid for pid in _all_pids() if b"slimrl.rollout.worker.serve" in _read(pid, "cmdline")]


def pids_called(title: str) -> list[int]:
    """The processes whose command line begins so."""
    return [pid for pid in _all_pids() if _read(pid, "cmdline").startswith(title.encode())]


def _all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A disk of its own for the run."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def write_questions(path: Path) -> Path:
    """More questions than the run has time for, so that none is met twice."""
    lines = [json.dumps({"prompt": f"{a} + {b} = ?", "answer": str(a + b)}) for a in range(150) for b in range(150)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def make_model(directory: Path) -> Path:
    """A random model of three million weights, with the tokenizer of SmolLM2."""
    tokenizer = AutoTokenizer.from_pretrained(resolve("smollm2-135m"))
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


def plan_of(num: int) -> list[str]:
    """What is done, in a random order: so many kills over all kinds, and each event."""
    kills = [victim for victim, times in VICTIMS.items() for _ in range(times)]
    random.Random(1).shuffle(kills)
    things = kills[:num]
    for place, event in enumerate(EVENTS):
        things.insert((place + 1) * len(things) // (len(EVENTS) + 1), event)
    return things


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="a new directory, which becomes a disk of its own")
    parser.add_argument("--kills", type=int, default=sum(VICTIMS.values()))
    arguments = parser.parse_args()
    facts, began, things = machine_facts(), time.monotonic(), plan_of(arguments.kills)
    environment = {
        "id": "dataset",
        "args": {
            "path": str(write_questions(arguments.runs.with_suffix(".jsonl"))),
            "test_share": 0.01,
            "answer": "whole",
            "system": "Write the sum like this: <answer>sum</answer>",
            "reward": "judge",
            "judge": {"base_url": f"http://{SUBNET}.1:{JUDGE_PORT}/v1", "model": "judge", "timeout_s": 8.0},
        },
        "worker": "process",
    }
    output_dir = arguments.runs / "run"
    model = make_model(arguments.runs.with_suffix(".model"))
    settings = {**SETTINGS, "model.name": model, "orchestrator.env": json.dumps([environment])}
    settings |= {"output_dir": output_dir, "max_steps": 20 * len(things) + 20}
    with small_disk(arguments.runs), Network(NODES, arguments.runs.with_suffix(".ray.log")) as network:
        chaos = Chaos(network, output_dir, settings)
        for what in things:
            chaos.do(what)
        last = chaos.run.num_steps()
        chaos.run.stop()
        # A few more steps, and a proper end.
        steps = last + 3
        end = start(output_dir, {**settings, "max_steps": steps}, network, ["--resume"])
        if end.process.wait(1800):
            raise SystemExit(end.said[-6000:])
        content = {
            "settings": SETTINGS,
            "minutes": round((time.monotonic() - began) / 60, 1),
            "kills": sum(one["what"] not in EVENTS for one in chaos.record),
            "record": chaos.record,
            "left": check(output_dir, steps),
        }
        write_result(RESULTS / "chaos.json", facts, content, {str(arguments.runs): "RUNS"})


if __name__ == "__main__":
    main()
