"""Runs with a planted fault: their settings, a sampler that keeps its first weights, a judge that says yes to all."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import ROOT
from benchmarks.learning.staleness import PastWeights
from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.launch.open_dir import open_training_dir
from slimrl.launch.parts import Parts, make_rl_parts, open_monitor
from slimrl.launch.sampling import SamplingHere
from slimrl.launch.supervised import prepare_warm_up
from slimrl.launch.training import Run
from slimrl.monitor.console import RunConsole
from slimrl.transport.base import Batch

ENV = f"{ROOT / 'benchmarks' / 'harness' / 'planted.py'}:Planted"
Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pathology:
    """A planted fault: `expected` are the monitors of which one has to be raised, `likely` others that then are right,
    too. `args` are those of `Planted`, `settings` of the run; `tiny` and `tiny_args` replace some for a tiny random
    model."""

    name: str
    expected: tuple[str, ...]
    likely: tuple[str, ...] = ()
    args: Settings = field(default_factory=dict)
    tiny_args: Settings = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    tiny: Settings = field(default_factory=dict)
    keeps_weights: bool = False
    asks_judge: bool = False


NO_SIGNAL = {"max_steps": 6, "warmup.max_steps": 0, "orchestrator.resample_factor": 1}
PATHOLOGIES = (
    Pathology(
        "length exploit",
        ("length",),
        ("reward_hacking", "repetition", "held_out_gap"),
        {"fault": "length", "most": 150},
        {"most": 48},
    ),
    Pathology(
        "repeated text",
        ("repetition",),
        ("reward_hacking", "length", "entropy_collapse"),
        {"fault": "repeat", "most": 4},
        {"most": 1},
        {"warmup.max_steps": 0, "max_steps": 20},
        {"max_steps": 20},
    ),
    Pathology(
        "judge that says yes to all",
        ("judge",),
        ("zero_signal",),
        {"fault": "judge"},
        settings=NO_SIGNAL,
        asks_judge=True,
    ),
    Pathology("stale weights", ("mismatch",), ("length",), {"fault": "length", "most": 150}, keeps_weights=True),
    Pathology("zero-variance rewards", ("zero_signal",), (), {"fault": "constant"}, settings=NO_SIGNAL),
    Pathology(
        "reward hacking of a regular expression",
        ("reward_hacking",),
        ("length", "repetition", "entropy_collapse"),
        {"fault": "regex", "pattern": "[0-9]", "most": 16},
        {"pattern": "[aeiou]", "most": 2},
        {"max_steps": 20},
    ),
)
COMMON = {
    "max_steps": 14,
    "seq_len": 160,
    "orchestrator.batch_size": 32,
    "orchestrator.rollouts_per_example": 8,
    "orchestrator.sampling.max_tokens": 48,
    "trainer.loss.type": "grpo",
    "trainer.optim.lr": 5e-5,
    "warmup.max_steps": 3,
    "warmup.batch_size": 32,
    "warmup.optim.lr": 1e-4,
    "eval.num_examples": 8,
    "eval.temperatures": "[1.0]",
    "ckpt.interval_steps": 0,
}
TINY = {
    "model.dtype": "float32",
    "model.num_threads": 1,
    "orchestrator.rollouts_per_example": 4,
    "orchestrator.sampling.max_tokens": 24,
    "trainer.optim.lr": 0.01,
    "warmup.max_steps": 30,
    "warmup.batch_size": 16,
    "warmup.optim.lr": 0.01,
}


def settings_of(fault: Pathology, model: str, output_dir: Path, is_tiny: bool, judge_url: str = "") -> Settings:
    """The settings of a run with the fault, by their dotted keys."""
    args = {**fault.args, **(fault.tiny_args if is_tiny else {}), "easy": is_tiny}
    if judge_url:
        args["judge"] = {"base_url": judge_url, "model": "yes-to-all"}
    env = json.dumps([{"id": ENV, "worker": "none", "args": args}])
    tiny = {**TINY, **fault.settings, **fault.tiny} if is_tiny else fault.settings
    return {**COMMON, **tiny, "model.name": model, "output_dir": output_dir, "orchestrator.env": env}


class KeepsFirst(SamplingHere):
    """Samples every batch with the weights of the first, which it gives out for the present ones."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, None)
        self._past = PastWeights(parts.policy.module, parts.config.max_steps)

    def receive(self, step: int) -> Batch:
        self._past.remember(step)
        self._past.put_oldest()
        self.publish(step)
        try:
            return super().receive(step)
        finally:
            self._past.put_newest()
            self.publish(step)


def run_with_first_weights(resolved: Resolved[RLConfig]) -> None:
    """The `rl` command with a sampler that keeps its first weights. Raises StepRefusedError where the guard ends it."""
    began, config, console = time.monotonic(), resolved.config, RunConsole()
    with open_training_dir(resolved, Path(config.output_dir), False, console.note) as output_dir:
        with open_monitor(resolved, console, 0) as monitor:
            parts = make_rl_parts(config, output_dir, console)
            warmup = prepare_warm_up(parts, None, parts.tasksets)
            run = Run(parts, KeepsFirst(parts), None, began)
            stages = run.train(warmup, monitor, ())
        run.report(stages)


@contextmanager
def judge_of_yes() -> Iterator[str]:
    """The address of a judge that says yes to all."""
    reply = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "yes"}}]}).encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *arguments: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/v1"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
