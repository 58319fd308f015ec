"""Kills the processes of a run one after the other, at random moments, and lets it end after enough kills.

    python -m benchmarks.checks.kills                 three runs, 21 kills

Each run has three processes and `max_async_level` 2. A part that is killed must be named and started again within the
run, which must go on; when `rl` itself is killed all must end, and it is resumed. Checked at the end: the accounts of
every step close, no task's rollouts are trained in two steps, no trained group is older than the bound, the weights
load in plain transformers. Besides, each part is stopped with SIGSTOP, the disk is filled, and an environment hangs:
all must be named within their time-out. Filling a disk needs the right to mount one. Writes
`benchmarks/results/kills.json`.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM

from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, write_result
from benchmarks.harness.runs import flags
from slimrl.io.process_tree import start_time
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics

LEVEL, GROUP = 2, 4
TIMEOUT_S = 15  # of every wait, in the runs in which something is stopped
PARTS = ("trainer", "orchestrator", "sampler-0")
SETTINGS = {
    "deployment.type": "processes",
    "max_async_level": LEVEL,
    "seq_len": 160,
    "orchestrator.batch_size": 16,
    "orchestrator.rollouts_per_example": GROUP,
    "orchestrator.sampling.max_tokens": 16,
    "trainer.loss.type": "reinforce",  # a model without a warm-up earns nothing: its baseline still gives a signal
    "trainer.optim.lr": 1e-6,
    "warmup.max_steps": 0,
    "eval.num_examples": 4,
    "ckpt.interval_steps": 3,
    "deployment.restarts": 99,
}


class Run:
    """A run as processes, whose output goes to a file."""

    def __init__(self, output_dir: Path, settings: Mapping[str, Any], resume: bool = False) -> None:
        self.output_dir, self._log = output_dir, output_dir.with_suffix(".log")
        recipe = str(ROOT / "examples" / "reverse_text" / "rl.toml")
        words = ["@", recipe, *flags({**SETTINGS, **settings, "output_dir": output_dir})]
        command = [sys.executable, "-m", "slimrl", "rl", *words, *(["--resume"] if resume else [])]
        self._from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def said(self) -> str:
        """What this start of the run has said."""
        return self._log.read_bytes()[self._from :].decode(errors="replace")

    @property
    def pids(self) -> dict[str, int]:
        """The ids of the parts that run now, as the command has said them."""
        found = re.findall(r"processes: trainer (\d+), orchestrator (\d+), sampler-0 (\d+)", self.said)
        pids = dict(zip(PARTS, map(int, found[-1]), strict=True)) if found else {}
        if again := re.findall(r"started sampler-0 again, as (\d+)", self.said):
            pids["sampler-0"] = int(again[-1])
        return pids | {"rl": self.process.pid}

    def await_step(self, step: int, seconds: float = 300.0) -> None:
        """Wait until the run has logged a step, or has ended."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline and steps_logged(self.output_dir) <= step:
            time.sleep(0.05)

    def wait(self, seconds: float = 600.0) -> int:
        return self.process.wait(seconds)

    def left(self) -> list[int]:
        """The parts that outlive the run."""
        deadline = time.monotonic() + 15
        while (left := [pid for pid in self.pids.values() if start_time(pid)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def steps_logged(output_dir: Path) -> int:
    """The number after that of the newest step that a run has logged."""
    path = output_dir / "metrics.jsonl"
    steps = [step for step, metrics in read_metrics(path) if "time/step_s" in metrics] if path.exists() else []
    return max(steps, default=-1) + 1


def kill_until_it_ends(
    output_dir: Path, victims: Sequence[str], steps: int, rng: random.Random
) -> list[dict[str, Any]]:
    """Kill one victim after the other, at random moments, and let the run end. Returns what came of each kill."""
    kills = []
    run = Run(output_dir, {"max_steps": steps})
    for victim in victims:
        run.await_step(steps_logged(output_dir) + rng.randrange(3))
        time.sleep(rng.uniform(0.0, 1.0))
        if run.process.poll() is not None:
            raise SystemExit(f"the run ended before {victim} could be killed:\n{run.said}")
        step, began, pid = steps_logged(output_dir), time.monotonic(), run.pids[victim]
        os.kill(pid, signal.SIGKILL)
        kill = {"victim": victim, "at_step": step}
        if victim == "rl":
            status = run.wait(60)
            kill["ended_after_s"] = round(time.monotonic() - began, 1)
            kill["ok"] = status == -signal.SIGKILL and not run.left()
            run = Run(output_dir, {"max_steps": steps}, resume=True)
        else:
            run.await_step(step + 1)  # the one that is logged next may have been made before
            kill["recovered_after_s"] = round(time.monotonic() - began, 1)
            named = f"the {victim} (process {pid}) was ended by SIGKILL" in run.said
            kill["ok"] = named and run.process.poll() is None and steps_logged(output_dir) > step
        print(kill, flush=True)
        kills.append(kill)
    if status := run.wait():
        raise SystemExit(f"the run did not end well ({status}):\n{run.said}")
    return kills


def check(output_dir: Path, steps: int) -> dict[str, Any]:
    """What a run that was killed has left: its accounts, its ages, the rollouts that it trained, its weights."""
    lines = {step: metrics for step, metrics in read_metrics(output_dir / "metrics.jsonl") if "time/step_s" in metrics}
    started = accounted = 0.0
    open_steps = []
    for step, metrics in sorted(lines.items()):
        started += metrics["rollout/started"]
        accounted += metrics["rollout/num_trained"] + sum(v for k, v in metrics.items() if k.startswith("drop/"))
        if started != accounted + metrics["async/waiting"] + metrics["async/in_flight"]:
            open_steps.append(step)
    trained: dict[str, set[int]] = defaultdict(set)
    for path in sorted((output_dir / "rollouts").glob("step_*.jsonl")):
        for record in read_rollouts(path):
            if record.advantages and any(record.advantages):
                trained[record.rollout.task_id].add(int(path.stem.removeprefix("step_")))
    AutoModelForCausalLM.from_pretrained(output_dir / "weights" / f"step_{steps}")
    return {
        "steps": sorted(lines) == list(range(steps)),
        "steps_whose_accounts_are_open": open_steps,
        "tasks_trained_in_two_steps": [task for task, at in trained.items() if len(at) > 1],
        "tasks_trained": len(trained),
        "largest_age": max(metrics["async/age_max"] for metrics in lines.values()),
        "dropped": dict(
            sum((Counter({k: v for k, v in m.items() if k.startswith("drop/")}) for m in lines.values()), Counter())
        ),
        "final_weights_load": True,
    }


def stop(directory: Path, victim: str) -> dict[str, Any]:
    """Stop a part with SIGSTOP, and see who says what of it."""
    settings = {"deployment.timeout_s": TIMEOUT_S, "inference.timeout_s": TIMEOUT_S, "max_steps": 1000}
    run = Run(directory / f"stopped_{victim}", settings)
    run.await_step(1)
    os.kill(run.pids[victim], signal.SIGSTOP)
    began = time.monotonic()
    status = run.wait(120)
    named = {"sampler-0": "sampler at http", "trainer": "for the trainer's", "orchestrator": "for the orchestrator's"}
    last = [line for line in run.said.splitlines() if named[victim] in line]
    return {"seconds": round(time.monotonic() - began, 1), "ok": status == 2 and bool(last), "said": last[-1:]}


def hang(directory: Path) -> dict[str, Any]:
    """Let every episode hang in its environment."""
    slow = f"{ROOT / 'benchmarks' / 'harness' / 'slow_reverse.py'}:SlowReverseText"
    env = f'[{{id="{slow}", args={{delay_s=1000.0}}, worker="none"}}]'
    settings = {"orchestrator.env": env, "orchestrator.episode_timeout_s": 3, "max_steps": 5, "eval.num_examples": 1}
    run, began = Run(directory / "hung", settings), time.monotonic()
    status = run.wait(300)
    last = [line for line in run.said.splitlines() if "timeout" in line or "timed out" in line]
    return {"seconds": round(time.monotonic() - began, 1), "ok": status == 2 and bool(last), "said": last[-1:]}


def fill_disk(directory: Path) -> dict[str, Any]:
    """Give the run a disk that holds three versions of its weights and no checkpoint."""
    disk = directory / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1000m", "tmpfs", str(disk)], check=False).returncode:
        return {"ok": None, "said": ["not tried: this user cannot mount a disk"]}
    try:
        run, began = Run(disk / "run", {"max_steps": 50}), time.monotonic()
        status = run.wait(300)
        last = [line for line in run.said.splitlines() if "No space left" in line or "could not write" in line]
        return {"seconds": round(time.monotonic() - began, 1), "ok": status == 2 and bool(last), "said": last[-1:]}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kills", type=int, default=7, help="in each run")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    machine, rng = machine_facts(), random.Random(arguments.seed)
    directory = Path(tempfile.mkdtemp(prefix="slimrl-kills-"))
    content: dict[str, Any] = {"runs": []}

    def record() -> None:
        write_result(RESULTS / "kills.json", machine, content, {str(directory): "RUNS"})

    for number in range(arguments.runs):
        victims = [("sampler-0", "trainer", "orchestrator", "rl")[(number + n) % 4] for n in range(arguments.kills)]
        output_dir = directory / f"run_{number}"
        kills = kill_until_it_ends(output_dir, victims, arguments.steps, rng)
        content["runs"].append({"kills": kills, "left": check(output_dir, arguments.steps)})
        print(content["runs"][-1]["left"], flush=True)
        shutil.rmtree(output_dir)
        record()
    content["stopped"] = {victim: stop(directory, victim) for victim in PARTS}
    content["hung_environment"], content["full_disk"] = hang(directory), fill_disk(directory)
    print({name: content[name] for name in ("stopped", "hung_environment", "full_disk")})
    record()
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
