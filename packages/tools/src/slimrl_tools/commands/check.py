"""The `check` command: tests environments and reports their faults (`slimrl_tools/check/`).

The command loads no weights, and imports PyTorch only for the tokenizer of a model.
"""

import json
import sys
import time
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from typing import Any

from slimrl.config.check import CheckConfig
from slimrl.config.model import ModelConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.rollout import EnvConfig, LimitsConfig
from slimrl.environments.find import load_taskset, prepare_taskset
from slimrl.io.invocation import show
from slimrl.launch.tasksets import has_worker, load_tasksets
from slimrl.models.chat.stand_in import stand_in_chat
from slimrl.models.chat.template import ChatFormat
from slimrl.monitor.console import RunConsole
from slimrl.plugins import call
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.program import start_here
from slimrl.rollout.worker.taskset import load_in_worker
from slimrl.types import Taskset
from slimrl_tools.check.run import Check
from slimrl_tools.check.trial import Trial
from slimrl_tools.findings import Finding, findings_table, has_problem, summary


def run_check(resolved: Resolved[CheckConfig], switches: Collection[str]) -> int:
    """Run the `check` command. Returns 1 if a problem was found, and 0 otherwise."""
    config, as_json = resolved.config, "--json" in switches
    name = config.model.name
    chat = call("slimrl.models.load:load_chat", ModelConfig(name=name)) if name else stand_in_chat()
    console = RunConsole(sys.stderr if as_json else None)
    reports: list[dict[str, Any]] = []
    status = 0
    for env in config.env:
        began = time.monotonic()
        # The output of an environment in this process must not mix with the findings.
        console.note(f"trying {env.id} ...")
        with redirect_stdout(sys.stderr):
            findings = check_env(env, config, chat)
        seconds = time.monotonic() - began
        status |= has_problem(findings)
        found = [asdict(one) for one in findings]
        reports.append({"environment": env.id, "args": env.args, "seconds": seconds, "findings": found})
        if not as_json:
            console.show(findings_table(f"{env.id} {_spell(env.args)}".strip(), findings, console.is_live))
            console.note(f"{summary(findings)}; {seconds:.1f} s")
    if as_json:
        show(json.dumps(reports, indent=1, ensure_ascii=False) + "\n")
    return int(status)


def check_env(env: EnvConfig, config: CheckConfig, chat: ChatFormat) -> list[Finding]:
    """Return all findings on one environment. Raises UserError if the environment cannot be made."""
    timeout_s = config.episode_timeout_s
    (taskset,) = load_tasksets([env], timeout_s)
    here, is_worker = taskset, has_worker(env)
    if is_worker:
        here = load_taskset(env.id, env.args)
        prepare_taskset(here)
    trial = Trial(taskset, chat, LimitsConfig(max_turns=config.max_turns, episode_timeout_s=timeout_s), config.seed)
    worker = partial(_worker, env, timeout_s)
    in_worker: Callable[[], Taskset] = (lambda: taskset) if is_worker else worker
    elsewhere = partial(_elsewhere, env, timeout_s)
    return Check(trial, here, in_worker, elsewhere, config.split, config.num_examples).run()


def _worker(env: EnvConfig, timeout_s: float) -> Taskset:
    """Start the environment in a worker process, and return its taskset."""
    (taskset,) = load_tasksets([env.model_copy(update={"worker": "process"})], timeout_s)
    return taskset


def _elsewhere(env: EnvConfig, timeout_s: float, seed: str) -> Taskset:
    """Start the environment in a process with the Python hash seed `seed`, and return its taskset. Only the tasks of
    this taskset are used."""
    return load_in_worker(Source(env.id, env.args, timeout_s), partial(start_here, {"PYTHONHASHSEED": seed}))


def _spell(args: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {json.dumps(value, default=str)}" for name, value in args.items())
