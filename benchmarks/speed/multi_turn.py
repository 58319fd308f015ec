"""What keeping the keys and values of a conversation between its turns is worth.

A group of 8 episodes on one prompt, 8 turns each, with observations of 300 tokens, played by the real agent loop,
client and engine. Two sides: the engine as it is, and the same engine behind a client that makes every prompt begin
differently, so that each turn computes the whole conversation anew, as re-sending it to a server without a prefix cache
does. The engine's own count of prefilled tokens is held against the unique tokens in the rollouts.

    python -m benchmarks.speed.multi_turn
"""

import argparse
import sys
from typing import Any

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
    side_command,
    write_result,
)
from benchmarks.harness.roofline import ModelShape, decode_work, model_shape, prefill_work
from benchmarks.sides.ours_episodes import Group, group_of
from slimrl.models.resolve import resolve

OURS, RESENDING = "slimrl", "re-sending"
WIDTHS = {"bfloat16": 2, "float32": 4}
HEAD = (
    "dtype",
    "reply tokens",
    "unique tokens to read",
    "prefilled",
    "prefilled when re-sending",
    "s a group (range)",
    "re-sending s (range)",
    "slimrl is",
    "share of limit",
)


def main() -> None:
    parser = common_arguments(__doc__ or "", "multi_turn.json", repetitions=3)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=300)
    parser.add_argument("--observation-tokens", type=int, default=300)
    parser.add_argument("--reply-tokens", type=int, nargs="+", default=[32, 128], help="lengths of a reply to try")
    parser.add_argument("--timed", type=int, default=1, help="timed groups of each kind in each process")
    arguments = parser.parse_args()
    facts = machine_facts()
    runs = alternate(sides(arguments), arguments.repetitions, arguments.threads)
    content = {"roofline": roofline(runs), "summary": summary(runs, arguments), "runs": runs}
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, {})


def groups(arguments: argparse.Namespace) -> list[Group]:
    """One for each length of a reply."""
    return [
        Group(arguments.rollouts, arguments.turns, arguments.prompt_tokens, arguments.observation_tokens, reply)
        for reply in arguments.reply_tokens
    ]


def sides(arguments: argparse.Namespace) -> list[Side]:
    """Both sides, for every dtype."""
    found = []
    for dtype in arguments.dtype:
        command = [*side_command(sys.executable, "ours_episodes"), "--model", str(resolve(arguments.model))]
        command += ["--dtype", dtype, "--threads", str(arguments.threads), "--timed", str(arguments.timed)]
        command += ["--groups", *map(str, groups(arguments))]
        found += [Side(OURS, dtype, command), Side(RESENDING, dtype, [*command, "--resend"])]
    return found


def summary(runs: Runs, arguments: argparse.Namespace) -> dict[str, Any]:
    """Tokens and medians of every dtype and length of a reply, and how many times faster we are."""
    machine, shape = roofline(runs), model_shape(resolve(arguments.model))
    result: dict[str, Any] = {}
    for dtype, reports in runs.items():
        for number, group in enumerate(groups(arguments)):
            ours, theirs = ([report["groups"][number] for report in reports[side]] for side in (OURS, RESENDING))
            limit_s = group_limit_s(shape, group, WIDTHS[dtype], machine[f"{dtype}_gflops"], machine["memory_gb_per_s"])
            counted = {key: all_timings(ours, key) for key in ("unique_read", "prefilled")}
            first_tokens = [read - computed for read, computed in zip(*counted.values(), strict=True)]
            times = {OURS: all_timings(ours, "sample_s"), RESENDING: all_timings(theirs, "sample_s")}
            result.setdefault(dtype, {})[str(group)] = {
                "unique_read": median(counted["unique_read"], 0),
                "prefilled": median(counted["prefilled"], 0),
                "unique_read_minus_prefilled": sorted(set(first_tokens)),
                "prefilled_when_resending": median(all_timings(theirs, "prefilled"), 0),
                "seconds": {side: spread(values) for side, values in times.items()},
                "times_faster": round(median(times[RESENDING]) / median(times[OURS]), 2),
                "times_faster_by_repetition": [
                    round(median(b["sample_s"]) / median(a["sample_s"]), 2) for a, b in zip(ours, theirs, strict=True)
                ],
                "share_of_limit": round(limit_s / median(times[OURS]), 3),
            }
    return result


def spread(seconds: list[float]) -> Report:
    """Median and range."""
    return {"median": median(seconds), "min": round(min(seconds), 3), "max": round(max(seconds), 3)}


def group_limit_s(shape: ModelShape, group: Group, width: int, gflops: float, gb_per_s: float) -> float:
    """The least time for a group: its prompt once, then turn by turn all observations, and decoding in step."""
    needed = [prefill_work(shape, 1, group.prompt, width)]
    known = group.prompt
    for turn in range(group.turns):
        if turn:
            needed.append(prefill_work(shape, group.rollouts, group.observation, width, known=known))
            known += group.observation
        needed += [decode_work(shape, group.rollouts, known + number, width) for number in range(group.reply)]
        known += group.reply
    return sum(work.seconds(gflops, gb_per_s) for work in needed)


def table(content: dict[str, Any]) -> str:
    """One line for each dtype and length of a reply, from the content of the JSON file."""
    rows = []
    for dtype, by_group in content["summary"].items():
        for name, numbers in by_group.items():
            tokens = [f"{numbers[key]:,.0f}" for key in ("unique_read", "prefilled", "prefilled_when_resending")]
            seconds = [numbers["seconds"][side] for side in (OURS, RESENDING)]
            times = [f"{s['median']:.2f} ({s['min']:.2f}-{s['max']:.2f})" for s in seconds]
            ratio, share = f"{numbers['times_faster']:.2f}x as fast", f"{numbers['share_of_limit']:.0%}"
            rows.append((dtype, str(group_of(name).reply), *tokens, *times, ratio, share))
    return markdown_table(HEAD, rows)


if __name__ == "__main__":
    main()
