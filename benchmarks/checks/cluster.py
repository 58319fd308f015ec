"""Does a run on a Ray cluster learn as its recipe does, while a node is lost and samplers come and go?

`python -m benchmarks.checks.cluster`: three nodes, which are processes of this machine at addresses of their own, train
the recipe of reverse_text with two trainer ranks, two samplers and two worker processes of environments. After some
steps the node of the trainer's first rank is killed; another takes its place. Then a sampler is added, and then one is
taken away. At the end the curve is compared with the recipe's band, and the accounts are added up. Writes
`benchmarks/results/cluster.json`; takes half an hour on two cores.
"""

import argparse
import json
import time
from pathlib import Path

from benchmarks.harness.cluster_run import ClusterRun
from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, write_result
from benchmarks.harness.ray_nodes import Nodes
from slimrl.io.run_dir import RunDir
from slimrl.monitor.sinks import read_metrics
from slimrl_cluster.launch.status import find_status, write_scale
from slimrl_tools.curves.curve_check import check_curve

SETTINGS = {
    "orchestrator.env.0.worker": "process",
    "deployment.type": "ray",
    "deployment.num_samplers": 2,
    "deployment.num_trainers": 2,
    "deployment.num_workers": 2,
    "deployment.cpus": 0.6,
    "model.num_threads": 1,
}
PARTS = ("trainer", "trainer-1", "orchestrator", "sampler-0", "sampler-1")
LOSE_AT, GROW_AT, SHRINK_AT = 12, 22, 30  # steps


def train(output_dir: Path) -> ClusterRun:
    """The run, trained to its end on a cluster that changes on the way."""
    with Nodes(3) as nodes:
        recipe = ["@", str(ROOT / "examples" / "reverse_text" / "rl.toml")]
        run = ClusterRun(output_dir, {**SETTINGS, "deployment.address": nodes.address}, words=recipe)
        run.await_that(lambda: run.num_steps() >= LOSE_AT)
        lost = run.where("trainer")
        on_it = [name for name in PARTS if run.where(name) == lost]
        nodes.kill(int(lost.rpartition(".")[2]) - 2)
        run.note("the trainer's node was killed", parts_on_it=on_it)
        seconds = run.await_that(lambda: "go on from the last checkpoint" in run.said)
        nodes.add(4)
        steps = run.num_steps()
        run.note("started again", after_s=seconds)
        run.note("a node was added, and a step trained", after_s=run.await_that(lambda: run.num_steps() > steps))
        run.await_that(lambda: run.num_steps() >= GROW_AT)
        write_scale(RunDir(output_dir), 3)
        run.note("a third sampler takes part", after_s=run.await_that(lambda: num_samplers(output_dir) == 3))
        run.await_that(lambda: run.num_steps() >= SHRINK_AT)
        write_scale(RunDir(output_dir), 2)
        run.note("it was taken away", after_s=run.await_that(lambda: num_samplers(output_dir) == 2))
        run.await_that(lambda: run.process.poll() is not None or (output_dir / "summary.json").exists())
        if run.process.wait(120):
            raise SystemExit(run.said[-4000:])
    return run


def num_samplers(output_dir: Path) -> int:
    """Return the number of samplers that take part in the run."""
    return sum(does.startswith("samples at") for _, _, does in find_status(output_dir).parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "outputs" / "cluster", help="where the run's directory goes"
    )
    arguments = parser.parse_args()
    output_dir = arguments.runs / "run"
    if output_dir.exists():
        raise SystemExit(f"{output_dir} is there already: remove it, or give another --runs.")
    arguments.runs.mkdir(parents=True, exist_ok=True)
    facts, began = machine_facts(), time.monotonic()
    run = train(output_dir)
    check = check_curve(output_dir)
    lines = {step: metrics for step, metrics in read_metrics(output_dir / "metrics.jsonl") if "time/step_s" in metrics}
    summary = json.loads((output_dir / "summary.json").read_text(encoding="utf-8"))
    content = {
        "settings": SETTINGS,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "events": run.events,
        "curve": {"verdict": check.verdict, "recipe": check.recipe.name, "seeds": check.recipe.num_seeds},
        "held_out": {stage["name"]: stage["held_out"] for stage in summary["stages"]},
        "steps_trained_once": sorted(lines) == list(range(max(lines) + 1)),
        "largest_mismatch_kl": max(metrics.get("guard/mismatch_kl", 0.0) for metrics in lines.values()),
        "step_s": [round(metrics["time/step_s"], 1) for _, metrics in sorted(lines.items())],
    }
    write_result(RESULTS / "cluster.json", facts, content, {str(arguments.runs): "RUNS"})


if __name__ == "__main__":
    main()
