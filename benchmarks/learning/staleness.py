"""Which losses survive stale data: rollouts sampled from weights that are 0, 2 or 8 versions behind those they train.

    python -m benchmarks.learning.staleness

As `algorithms.py`, with the same weights to begin from, rollouts, seeds and table. slimrl itself trains on what the
present weights sampled; here, copies of past weights are put into the module while a batch is collected and the present
ones are put back before the step (`Stale`). The first steps cannot be that far behind, and are as far as they can be:
step 3 of a run that is 8 behind is 3 behind.
Runs that are 0 behind are those of `algorithms.py`, and are taken from its directory if they are there. In float32,
losses that differ only in what they do with the ratio share them: it is 1 there. Writes
`benchmarks/results/staleness.json` and draws `docs/algorithms/stale.png`.
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness import comparison
from benchmarks.harness.comparison import (
    Algorithm,
    common_arguments,
    initial_weights,
    median_kl,
    recipe,
    run_settings,
    summary_of,
    train,
)
from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from benchmarks.harness.plots import draw_lines_of_each
from benchmarks.harness.runs import ROOT, Job, drop_weights, finish, flags
from slimrl.config.reading.load import Resolved, load
from slimrl.config.run import RLConfig
from slimrl.io.run_dir import RunDir
from slimrl.launch.open_dir import open_training_dir
from slimrl.launch.parts import Parts, make_rl_parts
from slimrl.launch.sampling import SamplingHere
from slimrl.launch.training import report, train_rl
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import JsonlSink, Monitor
from slimrl.trainer.state import start
from slimrl.transport.base import Batch

PICTURE = ROOT / "docs" / "algorithms" / "stale.png"
BEHIND = (0, 2, 8)
LOSSES = (
    *(Algorithm(name, {"trainer.loss.type": name}) for name in ("aipo", "grpo", "dapo", "gspo", "cispo", "rloo")),
    Algorithm("gspo, float32", {"trainer.loss.type": "gspo", "model.dtype": "float32"}),  # see algorithms.py
    Algorithm("rloo weighed", {"trainer.loss.type": "rloo", "trainer.loss.max_weight": 2.0}),
)
# Where every ratio is 1, as in float32 on rollouts of the present weights: the loss with the same gradient.
SAME_AT_RATIO_1 = {"gspo": "grpo", "cispo": "dapo", "rloo weighed": "rloo"}
Weights = dict[str, Tensor]
Summary = Mapping[str, Any]  # what `comparison.summary_of` says, by line of the table


class PastWeights:
    """Copies of a module's weights: those of the present version and of up to `behind` before it."""

    def __init__(self, module: nn.Module, behind: int) -> None:
        self._module = module
        self._copies: deque[tuple[int, Weights]] = deque(maxlen=behind + 1)

    def remember(self, version: int) -> None:
        """The module's weights are this version."""
        copies = {name: parameter.detach().clone() for name, parameter in self._module.named_parameters()}
        self._copies.append((version, copies))

    def put_oldest(self) -> int:
        """Give the module the oldest weights that are kept; returns their version."""
        return self._put(0)

    def put_newest(self) -> int:
        """Give it back those of the present, to the last bit: with half of the optimizer's masters in them."""
        return self._put(-1)

    @torch.no_grad()
    def _put(self, index: int) -> int:
        version, copies = self._copies[index]
        for name, parameter in self._module.named_parameters():
            parameter.copy_(copies[name])
        return version


class Stale(SamplingHere):
    """Samples each batch with weights from `behind` versions ago."""

    def __init__(self, parts: Parts, behind: int) -> None:
        super().__init__(parts, None)
        self._past = PastWeights(parts.policy.module, behind)

    def receive(self, step: int) -> Batch:
        """The batch of this step, sampled from older weights than those that are there before and after."""
        self._past.remember(step)
        version = self._past.put_oldest()
        self.publish(step)  # under the present number: that of the old would be too old for level 0
        try:
            batch = super().receive(step)
        finally:
            self._past.put_newest()
            self.publish(step)
        return replace(batch, samples=tuple(replace(sample, version=version) for sample in batch.samples))


def run_stale(resolved: Resolved[RLConfig], behind: int) -> None:
    """The `rl` command without warm-up and resuming, on stale rollouts."""
    began, config, console = time.monotonic(), resolved.config, RunConsole()
    with open_training_dir(resolved, Path(config.output_dir), False, console.note) as output_dir:
        parts = make_rl_parts(config, output_dir, console)
        sampling = Stale(parts, behind)
        first, before = parts.held_out.measure("start", "before RL")
        state = start(parts.policy, config.trainer.optim, output_dir, False)
        with Monitor([JsonlSink(RunDir(output_dir).metrics), console.steps(config.max_steps)]) as monitor:
            train_rl(parts, sampling, state, monitor, before)
            last, metrics = parts.held_out.measure("final", "after RL")
            monitor.log(config.max_steps, metrics)
        report(parts, [first, last], time.monotonic() - began)


def losses_of(dtype: str, behind: int) -> list[tuple[str, Algorithm]]:
    """The names of the table's lines, and whose runs they show."""
    if dtype != "float32":
        return [(algorithm.name, algorithm) for algorithm in LOSSES]
    by_name = {algorithm.name: algorithm for algorithm in LOSSES if algorithm.name != "gspo, float32"}
    return [
        (name, algorithm if behind else by_name[SAME_AT_RATIO_1.get(name, name)]) for name, algorithm in by_name.items()
    ]


def train_stale(algorithm: Algorithm, behind: int, weights: Path, seed: int, arguments: argparse.Namespace) -> Path:
    """One run, in a process of its own."""
    if not behind:
        return train(algorithm, weights, seed, arguments)
    run: Path = arguments.runs / f"{algorithm.slug}_behind_{behind}_seed_{seed}"
    settings = {"output_dir": run} | run_settings(algorithm, weights, seed, arguments)
    argv = ["@", str(arguments.recipe), *flags(settings), *arguments.more]
    finish(Job("rl", argv, run, program=[sys.executable, "-m", "benchmarks.learning.staleness", "--one", str(behind)]))
    drop_weights(run)
    return run


def by_loss(summary: Summary) -> Mapping[str, Summary]:
    """`summary`'s lines by loss, and those of a loss by how far behind: "0 behind", "2 behind"."""
    found: dict[str, dict[str, Any]] = {}
    for line, row in summary.items():
        name, _, behind = line.rpartition(", ")
        found.setdefault(name, {})[behind] = row
    return found


def table(content: Mapping[str, Any]) -> str:
    """What each loss has learned by how far behind its data was, seed by seed, and the mismatch KL of the steps that
    were as far behind as the last column says; then the lines of `algorithms.py`."""
    losses = by_loss(content["summary"])
    behind = list(next(iter(losses.values())))
    head = ("sampled, after RL: mean (seeds)", *behind, f"mismatch KL, {behind[-1]}")
    first = int(behind[-1].split()[0])
    rows = [
        (name, *(_seeds(row) for row in rows.values()), f"{_mismatch(rows[behind[-1]], first):.2g}")
        for name, rows in sorted(losses.items(), key=lambda item: -item[1][behind[-1]]["sampled"]["mean"])
    ]
    picture = f"![Training reward by loss](../{PICTURE.relative_to(ROOT)})"
    return f"{markdown_table(head, rows)}\n\n{picture}\n\n{comparison.table(content)}"


def _seeds(row: Mapping[str, Any]) -> str:
    seeds = ", ".join(f"{run['final_sampled']['mean']:.2f}" for run in row["runs"])
    return f"{row['sampled']['mean']:.3f} ({seeds})"


def _mismatch(row: Mapping[str, Any], first: int) -> float:
    """The median over the seeds of the median over the steps from `first` on."""
    seeds = [[kl for kl in run["mismatch_kl_curve"][first:] if kl is not None] for run in row["runs"]]
    return median_kl(median_kl(curve) for curve in seeds if curve)


def refuse_what_stale_runs_lack(config: RLConfig) -> None:
    """Exits on what `run_stale` does not build and the runs that are 0 behind would have."""
    loss = config.trainer.loss
    found = {
        f"trainer.loss.kl_beta = {loss.kl_beta:g}": loss.kl_beta > 0,
        'trainer.loss.advantage = "gae"': loss.resolve().has_critic,
        "a `[teacher]`": config.has_teacher,
        f"model.lora.rank = {config.model.lora.rank}": config.model.lora.rank > 0,
    }
    if lacking := [name for name, is_set in found.items() if is_set]:
        sys.exit(
            f"{' and '.join(lacking)} cannot act in runs on stale data: they have no value head, no teacher, no copy "
            "of the first weights and no merged adapters, and would be compared with runs that have. Remove it from "
            "`--more`."
        )


def main() -> None:
    if sys.argv[1:2] == ["--one"]:  # a run, for the process below
        run_stale(load(RLConfig, sys.argv[3:], {}), int(sys.argv[2]))
        return
    parser = common_arguments(__doc__ or "", RESULTS / "staleness.json")
    parser.add_argument("--behind", type=int, nargs="+", default=BEHIND, help="versions")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    for algorithm in LOSSES:
        argv = ["@", str(arguments.recipe), *flags(dict(algorithm.settings)), *arguments.more]
        refuse_what_stale_runs_lack(load(RLConfig, argv, {}).config)
    facts = machine_facts()
    weights = initial_weights(arguments)
    runs: dict[str, dict[int, Path]] = {}
    for seed in arguments.seeds:
        for behind in arguments.behind:
            for name, algorithm in losses_of(arguments.dtype, behind):
                run = train_stale(algorithm, behind, weights, seed, arguments)
                runs.setdefault(f"{name}, {behind} behind", {})[seed] = run
    summary = {name: summary_of(found, arguments.threshold) for name, found in runs.items()}
    content = {"recipe": recipe(arguments), "summary": summary}
    print(f"\n{table(content)}")
    private = {
        str(arguments.runs): "outputs/staleness",
        str(arguments.weights): "WEIGHTS",
        str(arguments.picture): arguments.picture.name,
    }
    write_result(arguments.output, facts, content, private)
    title = f"Training reward by versions behind: mean and range of {len(arguments.seeds)} seeds"
    draw_lines_of_each(by_loss(summary), arguments.picture, title)


if __name__ == "__main__":
    main()
