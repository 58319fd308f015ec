"""What an encyclopedia costs to write, to index, to keep open and to search, at several sizes, and how that grows.

Every stage of every size (`retrieval_work.py`) runs in a process of its own. What is built lies in `--directory` until
the script ends, so a run that was interrupted goes on; `--keep` leaves it there. Sizes that were not run, the 2,600
pages of the corpus that is published for `wiki-search` and a million, are worked out from the nearest two that were:
what is done once for every page by so much a page, a search by so much for every tenfold. The table says which those
are.

    python -m benchmarks.speed.retrieval
    python -m benchmarks.speed.retrieval --sizes 1000 10000

Linux only: memory is read from /proc.
"""

import argparse
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.measure import (
    RESULTS,
    Side,
    cores,
    machine_facts,
    markdown_table,
    run_side,
    side_command,
    write_result,
)
from slimrl.io.cache import cache_root

SIZES = (1_000, 10_000, 100_000)
NOT_RUN = (2_600, 1_000_000)
STAGES = ("write", "index", "search")
# What is shown of every size: its name, and its digits. What costs so much a page, ...
BY_PAGE = {
    "writing s": 1,
    "corpus on disk MiB": 1,
    "embedding titles s": 1,
    "filling the index s": 1,
    "index on disk MiB": 1,
    "memory of indexing MiB": 0,
    "opening s": 2,
    "memory of index and corpus MiB": 1,
}
# ... what costs so much for every tenfold, as a graph is walked through, ...
BY_TENFOLD = {
    "search p50 ms": 1,
    "search p99 ms": 1,
    "without embedding p50 ms": 2,
    "without embedding p99 ms": 2,
}
# ... and what is not to be worked out.
SHARES = {"title finds its page first": 3, "title finds its page in 10": 3, "question finds its page in 10": 3}
SPEEDS = {"pages/s written": ("writing s",), "pages/s indexed": ("embedding titles s", "filling the index s")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of encyclopedias, in pages, two or more")
    parser.add_argument("--num-queries", type=int, default=500, help="of each kind: questions, and titles")
    parser.add_argument("--threads", type=int, default=len(cores()), help="of the embedder; all cores by default")
    parser.add_argument("--directory", type=Path, default=cache_root() / "benchmarks" / "retrieval")
    parser.add_argument("--keep", action="store_true", help="do not delete what was built")
    parser.add_argument("--output", type=Path, default=RESULTS / "retrieval.json")
    arguments = parser.parse_args()
    if len(arguments.sizes) < 2:
        sys.exit("growth needs two sizes or more, as in --sizes 1000 10000.")
    facts = machine_facts()
    sizes = [measure_size(arguments, num_pages) for num_pages in sorted(arguments.sizes)]
    verdicts = run_side(stage(arguments, "cache", arguments.directory), arguments.threads)
    content = {
        "versions": {name: version(name) for name in ("chromadb", "sentence-transformers", "torch")},
        "threads": arguments.threads,
        "sizes": sizes,
        "verdicts": verdicts,
        "not_run": [extrapolate(sizes, num_pages) for num_pages in NOT_RUN],
    }
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, {str(arguments.directory): "DIRECTORY"})
    if not arguments.keep:
        delete_what_was_built(arguments.directory, arguments.sizes)


def delete_what_was_built(directory: Path, sizes: Sequence[int]) -> None:
    """And nothing else: the directory may be one where other things lie."""
    for num_pages in sizes:
        shutil.rmtree(directory / str(num_pages))
    (directory / "verdicts.txt").unlink()
    if not any(directory.iterdir()):
        directory.rmdir()


def stage(arguments: argparse.Namespace, name: str, directory: Path, num_pages: int = 0) -> Side:
    directory.mkdir(parents=True, exist_ok=True)
    numbers = {"num-pages": num_pages, "num-queries": arguments.num_queries, "threads": arguments.threads}
    flags = [text for flag, number in numbers.items() for text in (f"--{flag}", str(number))]
    command = [*side_command(sys.executable, "retrieval_work"), name, "--directory", str(directory), *flags]
    return Side(name, "", command)


def measure_size(arguments: argparse.Namespace, num_pages: int) -> dict[str, Any]:
    """The reports of all stages at one size, and what is shown of them."""
    reports: dict[str, dict[str, Any]] = {}
    for name in STAGES:
        reports[name] = run_side(
            stage(arguments, name, arguments.directory / str(num_pages), num_pages), arguments.threads
        )
        print(f"{num_pages:,} pages, {name}: done", flush=True)
    for kind in ("question", "title"):
        found = reports["search"][kind]
        for key in ("seconds", "without_embedding_s"):
            found[key] = [round(1000 * value, 3) for value in found[key]]
    return {"pages": num_pages, "shown": figures(reports), "reports": reports}


def figures(reports: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    write, index, search = (reports[name] for name in STAGES)
    both = [*search["question"]["seconds"], *search["title"]["seconds"]]
    without = [*search["question"]["without_embedding_s"], *search["title"]["without_embedding_s"]]
    values = (
        write["seconds"],
        write["disk_mib"],
        index["embed_s"],
        index["fill_s"],
        index["disk_mib"],
        index["peak_of_all_runs_mib"],
        search["open_s"],
        search["resident_opened_mib"] - search["resident_before_mib"],
        *np.percentile(both, (50, 99)),
        *np.percentile(without, (50, 99)),
        search["title"]["first"],
        search["title"]["in_first_10"],
        search["question"]["in_first_10"],
    )
    digits = {**BY_PAGE, **BY_TENFOLD, **SHARES}
    return {name: round(float(value), digits[name]) for name, value in zip(digits, values, strict=True)}


def extrapolate(sizes: Sequence[Mapping[str, Any]], num_pages: int) -> dict[str, Any]:
    """The growing numbers at a size that was not run, on a line through the two sizes nearest to it."""
    low, high = sorted(sorted(sizes, key=lambda size: abs(math.log(size["pages"] / num_pages)))[:2], key=_pages)
    values = {}
    for growing, scale in ((BY_PAGE, float), (BY_TENFOLD, math.log10)):
        share = (scale(num_pages) - scale(low["pages"])) / (scale(high["pages"]) - scale(low["pages"]))
        for name, digits in growing.items():
            first, last = low["shown"][name], high["shown"][name]
            values[name] = round(max(first + share * (last - first), 0.0), digits)
    return {"pages": num_pages, "from": [low["pages"], high["pages"]], "shown": values}


def _pages(size: Mapping[str, Any]) -> int:
    return int(size["pages"])


def table(content: Mapping[str, Any]) -> str:
    """A column for every size, run or not, in order, and the growth from the smallest to the largest that was run."""
    run, columns = content["sizes"], sorted([*content["sizes"], *content["not_run"]], key=_pages)
    smallest, largest = run[0], run[-1]
    head = ["pages", *(f"{size['pages']:,}{_how(size)}" for size in columns), f"growth, {growth_of(run)}"]
    rows = [
        [name, *(_number(size["shown"].get(name), digits) for size in columns), _growth(smallest, largest, name)]
        for name, digits in {**BY_PAGE, **BY_TENFOLD, **SHARES}.items()
    ]
    for name, keys in SPEEDS.items():
        speeds = [size["pages"] / max(sum(size["shown"][key] for key in keys), 0.1) for size in columns]
        rows.append([name, *(f"{speed:,.0f}" for speed in speeds), ""])
    return f"{markdown_table(head, rows)}\n\n{_memory(content)}"


def growth_of(run: Sequence[Mapping[str, Any]]) -> str:
    return f"{run[-1]['pages'] / run[0]['pages']:,.0f} times the pages"


def _how(size: Mapping[str, Any]) -> str:
    if "from" not in size:
        return ""
    low, high = size["from"]
    return " (extrapolated)" if size["pages"] > high or size["pages"] < low else " (interpolated)"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _growth(smallest: Mapping[str, Any], largest: Mapping[str, Any], name: str) -> str:
    if name in SHARES:
        return ""
    return f"x {largest['shown'][name] / smallest['shown'][name]:,.1f}" if smallest["shown"][name] else "from 0"


def _memory(content: Mapping[str, Any]) -> str:
    """Sentences on what does not depend on the number of pages."""
    verdicts, search = content["verdicts"], content["sizes"][-1]["reports"]["search"]
    held = verdicts["resident_after_mib"] - verdicts["resident_before_mib"]
    return (
        f"Python, PyTorch and the embedder hold {search['resident_before_mib']:,.0f} MiB before anything is opened. "
        f"{verdicts['verdicts']:,} verdicts of a judge take {verdicts['disk_mib']:.1f} MiB on disk and {held:.1f} MiB "
        f"of memory; one is written in {1e6 * verdicts['put_s'] / verdicts['verdicts']:.0f} and found in "
        f"{1e6 * verdicts['get_s'] / verdicts['verdicts']:.0f} microseconds."
    )


if __name__ == "__main__":
    main()
