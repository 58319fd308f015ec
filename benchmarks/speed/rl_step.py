"""One RL step at equal work: slimrl against TRL's `GRPOTrainer`, on a CPU or a GPU, in one run on one machine.

A step: 32 rollouts (4 prompts of about 45 tokens x 8) of exactly 64 new tokens, rewards that differ in every group, the
GRPO loss without a reference model, clipping at 1.0, one AdamW step. Each side runs in a process of its own, the two in
turn, each with one warm-up step first; what is reported is the median over all timed steps.

    python -m benchmarks.speed.rl_step --trl-python TRL_ENVIRONMENT/bin/python
    python -m benchmarks.speed.rl_step --device cuda --output benchmarks/results/rl_step_gpu.json --trl-python ...

benchmarks/README.md says how to make that environment. Without it only our side is measured.
"""

import argparse
import statistics
import sys
from typing import Any

from benchmarks.harness.measure import (
    Report,
    Side,
    add_device,
    all_timings,
    alternate,
    common_arguments,
    machine_facts,
    markdown_table,
    median,
    roofline,
    side_command,
    write_result,
)
from slimrl.config.train import TrainerConfig
from slimrl.models.resolve import resolve

TABLE_HEAD = ("dtype", "side", "step s (range)", "rollout s", "train s", "peak memory GB", "TRL / slimrl")


def main() -> None:
    arguments = parse_arguments()
    facts = machine_facts()
    common = ["--model", str(resolve(arguments.model)), "--steps", str(arguments.steps)]
    common += ["--device", arguments.device]
    sides = [
        Side(name, dtype, [*command, *common, "--dtype", dtype])
        for dtype in arguments.dtype
        for name, command in commands(arguments, dtype).items()
    ]
    runs = alternate(sides, arguments.repetitions, arguments.threads, arguments.device)
    result = {dtype: summary(runs[dtype]) for dtype in runs}
    content = {"roofline": roofline(runs), "summary": result, "runs": runs}
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, {arguments.trl_python: "TRL_ENVIRONMENT/bin/python"})


def parse_arguments() -> argparse.Namespace:
    parser = common_arguments(__doc__ or "", "rl_step.json", repetitions=3)
    add_device(parser)
    parser.add_argument("--trl-python", default="", help="interpreter of an environment that has TRL")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each process")
    parser.add_argument(
        "--micro-batch-tokens",
        type=int,
        default=TrainerConfig().micro_batch_tokens,
        help="tokens in one of our backward passes; our default holds the whole batch",
    )
    parser.add_argument("--trl-micro-batch", type=int, default=8, help="rollouts in one of TRL's backward passes")
    parser.add_argument(
        "--trl-weights",
        choices=["same", "float32"],
        default="same",
        help="what TRL keeps the weights in: the --dtype, or float32 under autocast (as precise as ours)",
    )
    return parser.parse_args()


def commands(arguments: argparse.Namespace, dtype: str) -> dict[str, list[str]]:
    """The command of each side to measure."""
    ours = [*side_command(sys.executable, "ours_step"), "--micro-batch-tokens", str(arguments.micro_batch_tokens)]
    found = {"slimrl": ours}
    if arguments.trl_python:
        weights = dtype if arguments.trl_weights == "same" else arguments.trl_weights
        options = ["--weights", weights, "--micro-batch", str(arguments.trl_micro_batch)]
        found["TRL"] = [*side_command(arguments.trl_python, "trl_step"), *options]
    return found


def summary(sides: dict[str, list[Report]]) -> dict[str, Any]:
    """Medians of each side, and how many times longer TRL's step takes: over all, and repetition by repetition."""
    prompts = {tuple(report["prompt_tokens"]) for reports in sides.values() for report in reports}
    assert len(prompts) == 1, f"the sides did not see the same prompts: {prompts}"
    result: dict[str, Any] = {side: side_summary(reports) for side, reports in sides.items()}
    if "TRL" in sides:
        result["ratio"] = round(result["TRL"]["step_s"] / result["slimrl"]["step_s"], 2)
        medians = {side: [statistics.median(r["step_s"]) for r in reports] for side, reports in sides.items()}
        pairs = zip(medians["TRL"], medians["slimrl"], strict=True)
        result["ratio_by_repetition"] = [round(theirs / ours, 2) for theirs, ours in pairs]
    return result


def side_summary(reports: list[Report]) -> dict[str, float]:
    """Medians over all timed steps, their range, and the largest peak memory of a process."""
    steps = all_timings(reports, "step_s")
    return {
        **{key: median(all_timings(reports, key)) for key in ("step_s", "rollout_s", "train_s")},
        "step_s_min": round(min(steps), 3),
        "step_s_max": round(max(steps), 3),
        "peak_memory_gb": round(max(report["peak_memory_gb"] for report in reports), 2),
        "gflops_float32": statistics.median(report["machine"]["float32_gflops"] for report in reports),
        "gflops_bfloat16": statistics.median(report["machine"]["bfloat16_gflops"] for report in reports),
    }


def table(content: dict[str, Any]) -> str:
    """One line for each dtype and side, from the content of the JSON file."""
    rows = []
    for dtype, numbers in content["summary"].items():
        for side in (name for name in ("slimrl", "TRL") if name in numbers):
            row = numbers[side]
            steps = f"{row['step_s']:.2f} ({row['step_s_min']:.2f}-{row['step_s_max']:.2f})"
            ratio = f"{numbers['ratio']:.2f}" if side == "slimrl" and "ratio" in numbers else ""
            parts = (f"{row['rollout_s']:.2f}", f"{row['train_s']:.2f}", f"{row['peak_memory_gb']:.1f}")
            rows.append((dtype, side, steps, *parts, ratio))
    return markdown_table(TABLE_HEAD, rows)


if __name__ == "__main__":
    main()
