"""Writes the tables of some pages from the JSON files under benchmarks/results/: no figure is copied by hand.

    python -m benchmarks.table            write them
    python -m benchmarks.table --check    exit with 1 if they are not what the files say

A table stands between `<!-- NAME.json -->` and `<!-- end -->`. It is drawn by the script that wrote the file.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.checks import clients, deals, losses_vs_trl, sft_masks_vs_trl, wordle_solver
from benchmarks.harness import comparison
from benchmarks.harness.measure import RESULTS, ROOT
from benchmarks.learning import lora, reasoning_gym_table, staleness
from benchmarks.speed import (
    contention,
    decode,
    multi_turn,
    prefill,
    records,
    retrieval,
    rl_step,
    sandbox,
    scaling,
    server,
    train_step,
    viewer,
)

TABLES: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "decode.json": decode.table,
    "decode_gpu.json": decode.table,
    "prefill.json": prefill.table,
    "prefill_avx512_bf16.json": prefill.table,
    "rl_step.json": rl_step.table,
    "rl_step_float32_weights.json": rl_step.table,
    "rl_step_avx512_bf16.json": rl_step.table,
    "rl_step_gpu.json": rl_step.table,
    "train_step.json": lambda content: f"{train_step.table(content)}\n\n{train_step.gradient_table(content)}",
    "multi_turn.json": multi_turn.table,
    "retrieval.json": retrieval.table,
    "scaling.json": lambda content: f"{scaling.table(content)}\n\n![Cost of a step](results/scaling.png)",
    "server.json": server.table,
    "sandbox.json": sandbox.table,
    "viewer.json": viewer.table,
    "records.json": records.table,
    "contention.json": contention.table,
    "losses_vs_trl.json": losses_vs_trl.table,
    "sft_masks_vs_trl.json": sft_masks_vs_trl.table,
    "algorithms.json": comparison.table,
    "credit.json": comparison.table,
    "staleness.json": staleness.table,
    "lora.json": lambda content: lora.table(content["summary"]),
    "wordle_solver.json": wordle_solver.table,
    "deals.json": deals.table,
    "clients.json": lambda content: clients.table(content["clients"]),
    "reasoning_gym_tasks.json": reasoning_gym_table.table,
}
PAGES = (ROOT / "benchmarks" / "README.md", ROOT / "docs" / "clients.md", ROOT / "docs" / "reasoning_gym.md")
PLACE = re.compile(r"<!-- (\w+\.json) -->\n.*?<!-- end -->", re.DOTALL)


def render(page: str, results: Path) -> str:
    """The text with every table anew. A file that is not there is a benchmark that has not been run."""
    return PLACE.sub(lambda found: f"<!-- {found[1]} -->\n\n{_section(found[1], results)}\n\n<!-- end -->", page)


def _section(name: str, results: Path) -> str:
    if name not in TABLES:
        sys.exit(f"a page asks for {name}, which no benchmark writes; there are: {', '.join(TABLES)}.")
    path = results / name
    if not path.exists():
        return "Not measured yet."
    content = json.loads(path.read_text(encoding="utf-8"))
    return f"{_facts(content, name)}\n\n{TABLES[name](content)}"


def _facts(content: Mapping[str, Any], name: str) -> str:
    """Where the numbers come from."""
    machine = content["machine"]
    features = "".join(f", {feature}" for feature in machine["bfloat16_instructions"])
    text = f"{content['date']}, {machine['cpu']}, {machine['cores']} cores{features}; `{content['command']}`; "
    text += f"load average before it {machine['load_average_before']}"
    if "roofline" in content:
        limits = content["roofline"]
        text += (
            f"; measured limits: float32 {limits['float32_gflops']:,.0f} GFLOP/s, bfloat16 "
            f"{limits['bfloat16_gflops']:,.0f} GFLOP/s, memory {limits['memory_gb_per_s']:.0f} GB/s "
            f"({limits.get('gpu', str(limits['threads']) + ' threads')})"
        )
    return f"{text} (`benchmarks/results/{name}`):"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is out of date")
    parser.add_argument("--page", type=Path, nargs="*", default=PAGES)
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the JSON files")
    arguments = parser.parse_args()
    for page in arguments.page:
        before = page.read_text(encoding="utf-8")
        after = render(before, arguments.results)
        if arguments.check and after != before:
            sys.exit(f"{page} does not show what the results say; run `python -m benchmarks.table`.")
        if not arguments.check:
            page.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
