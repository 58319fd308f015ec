"""What a training step costs, forward, backward and update: ours against transformers' module on padded batches.

Three batches of made-up tokens: `equal`, 8 sequences of 256 tokens; `ragged`, 8 of 64 to 576 with the same mean; and
`group`, 16 completions of 100 tokens on one prompt of 500, which slimrl computes once. `slimrl dense` is the same code
on the group with every sample in a micro-batch of its own, so that nothing is shared. Afterwards the gradients of the
group are compared in float32.

    python -m benchmarks.speed.train_step
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.harness.measure import (
    Report,
    Runs,
    Side,
    all_timings,
    alternate,
    common_arguments,
    machine_facts,
    markdown_table,
    median,
    roofline,
    run_side,
    side_command,
    write_result,
)
from benchmarks.harness.roofline import model_shape, train_work
from benchmarks.harness.train_work import GroupSize, Sequence, batch_of, group_size
from slimrl.models.resolve import resolve

OURS, DENSE, THEIRS = "slimrl", "slimrl dense", "transformers"
WORKS = ("equal", "ragged", "group")
WIDTHS = {"bfloat16": 2, "float32": 4}
HEAD = ("batch", "dtype", "side", "step s (range)", "tok/s", "share of limit", "slimrl is", "peak memory GB")


def main() -> None:
    parser = common_arguments(__doc__ or "", "train_step.json", repetitions=3)
    parser.add_argument("--transformers-python", default=sys.executable, help="interpreter for transformers' side")
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--group", type=group_size, default=GroupSize(), help="ROLLOUTSxPROMPT+COMPLETION of `group`")
    parser.add_argument("--steps", type=int, default=2, help="timed steps of each process")
    parser.add_argument("--micro-batch-tokens", type=int, default=4096, help="tokens in one of our backward passes")
    parser.add_argument("--transformers-micro-batch", type=int, default=8, help="sequences in one of theirs")
    arguments = parser.parse_args()
    facts = machine_facts()
    listed = [side for dtype in arguments.dtype for work in arguments.work for side in sides(arguments, dtype, work)]
    runs = alternate(listed, arguments.repetitions, arguments.threads)
    content = {
        "roofline": roofline(runs),
        "group": str(arguments.group),
        "summary": summary(runs, arguments),
        "gradient": gradients(arguments) if "group" in arguments.work else {},
        "runs": runs,
    }
    print(f"\n{table(content)}\n\n{gradient_table(content)}")
    private = {arguments.transformers_python: "TRANSFORMERS_ENVIRONMENT/bin/python"}
    write_result(arguments.output, facts, content, private)


def sides(arguments: argparse.Namespace, dtype: str, work: str) -> list[Side]:
    """The sides of one batch; a side's name begins with that of the batch."""
    options = ["--model", str(resolve(arguments.model)), "--dtype", dtype, "--threads", str(arguments.threads)]
    options += ["--work", work, "--group", str(arguments.group), "--steps", str(arguments.steps)]
    tokens = ["--micro-batch-tokens", str(arguments.micro_batch_tokens)]
    ours = [*side_command(sys.executable, "ours_train"), *tokens]
    theirs = side_command(arguments.transformers_python, "transformers_train")
    commands = {OURS: ours}
    if work == "group":
        commands[DENSE] = [*ours, "--dense"]
    commands[THEIRS] = [*theirs, "--micro-batch", str(arguments.transformers_micro_batch)]
    return [Side(f"{work}: {name}", dtype, [*command, *options]) for name, command in commands.items()]


def summary(runs: Runs, arguments: argparse.Namespace) -> dict[str, Any]:
    """Medians of every batch, dtype and side; tokens a second count each sequence's tokens, shared or not."""
    machine, shape = roofline(runs), model_shape(resolve(arguments.model))
    result: dict[str, Any] = {}
    for dtype, reports in runs.items():
        for work in arguments.work:
            sequences = batch_of(work, shape.head, arguments.group)
            tokens, pairs = unique_work(sequences)
            trained = sum(sequence.num_trained for sequence in sequences)
            needed = train_work(shape, tokens, trained, pairs, WIDTHS[dtype])
            limit_s = needed.seconds(machine[f"{dtype}_gflops"], machine["memory_gb_per_s"])
            names = [name for name in (OURS, DENSE, THEIRS) if f"{work}: {name}" in reports]
            times = {name: median(all_timings(reports[f"{work}: {name}"], "step_s")) for name in names}
            total = sum(len(sequence.token_ids) for sequence in sequences)
            result.setdefault(work, {})[dtype] = {
                "tokens": total,
                "unique_tokens": tokens,
                "limit_s": round(limit_s, 3),
                "sides": {name: side_summary(reports[f"{work}: {name}"], total, limit_s) for name in names},
                "times_faster": {name: round(times[name] / times[OURS], 2) for name in names if name != OURS},
            }
    return result


def side_summary(reports: list[Report], tokens: int, limit_s: float) -> dict[str, float]:
    """The medians of a side on a batch. `share_of_limit` is of the time that its unique tokens need at least."""
    steps = all_timings(reports, "step_s")
    return {
        "step_s": median(steps),
        "step_s_min": round(min(steps), 3),
        "step_s_max": round(max(steps), 3),
        "tokens_per_s": round(tokens / median(steps), 1),
        "share_of_limit": round(limit_s / median(steps), 3),
        "peak_memory_gb": round(max(report["peak_memory_gb"] for report in reports), 2),
        "loss": reports[0]["loss"],
        "grad_norm": reports[0]["grad_norm"],
    }


def unique_work(sequences: list[Sequence]) -> tuple[int, int]:
    """Tokens that a forward needs, a shared prompt's once, and pairs of query and key among them.

    The last token of a sequence is predicted and predicts nothing, so it is not among them.
    """
    prompts = {sequence.token_ids[: sequence.prompt] for sequence in sequences}
    tokens, pairs = sum(map(len, prompts)), sum(len(p) * (len(p) + 1) // 2 for p in prompts)
    for sequence in sequences:
        fed = sequence.num_trained - 1
        tokens += fed
        pairs += fed * sequence.prompt + fed * (fed + 1) // 2
    return tokens, pairs


def gradients(arguments: argparse.Namespace) -> dict[str, Any]:
    """How far the gradients of the group on the first step are from ours, in float32.

    `largest_of_a_tensor`: the norm of the difference over the norm, for the worst parameter; `whole`: over all.
    """
    with tempfile.TemporaryDirectory() as directory:
        found = {}
        for side in sides(arguments, "float32", "group"):
            name = side.name.partition(": ")[2]
            path = Path(directory) / f"{name}.safetensors"
            run_side(Side(side.name, side.dtype, [*side.command, "--gradient", str(path)]), arguments.threads)
            found[name] = load_file(path)
    ours = found.pop(OURS)
    return {name: gradient_difference(ours, theirs) for name, theirs in found.items()}


def gradient_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Relative differences of two gradients of the same parameters."""
    assert ours.keys() == theirs.keys(), f"gradients of other parameters: {sorted(ours.keys() ^ theirs.keys())[:3]}"
    apart = {name: float((ours[name] - theirs[name]).double().norm()) for name in ours}
    norms = {name: float(theirs[name].double().norm()) for name in ours}
    worst = max(ours, key=lambda name: apart[name] / norms[name])
    return {
        "largest_of_a_tensor": apart[worst] / norms[worst],
        "tensor": worst,
        "whole": sum(d * d for d in apart.values()) ** 0.5 / sum(n * n for n in norms.values()) ** 0.5,
    }


def table(content: dict[str, Any]) -> str:
    """One line for each batch, dtype and side, from the content of the JSON file."""
    rows = []
    for work, dtypes in content["summary"].items():
        for dtype, numbers in dtypes.items():
            for name, row in numbers["sides"].items():
                steps = f"{row['step_s']:.2f} ({row['step_s_min']:.2f}-{row['step_s_max']:.2f})"
                ratio = "" if name == OURS else f"{numbers['times_faster'][name]:.2f}x as fast"
                speed, share = f"{row['tokens_per_s']:,.0f}", f"{row['share_of_limit']:.0%}"
                rows.append((work, dtype, name, steps, speed, share, ratio, f"{row['peak_memory_gb']:.1f}"))
    return markdown_table(HEAD, rows)


def gradient_table(content: dict[str, Any]) -> str:
    """How far the gradients are apart, from the content of the JSON file."""
    head = ("gradient of `group`, float32: slimrl against", "relative difference", "of the worst parameter")
    rows = [(name, f"{g['whole']:.1e}", f"{g['largest_of_a_tensor']:.1e}") for name, g in content["gradient"].items()]
    return markdown_table(head, rows)


if __name__ == "__main__":
    main()
