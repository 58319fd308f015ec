"""The `judge` command, which measures how often judges agree with labelled answers."""

import argparse
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.files import replace_file, without_nan
from slimrl.io.settings import read_settings
from slimrl.judges.judge import JudgeServer, LLMJudge, judge_of
from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import Cells, for_terminal
from slimrl.stats import Estimate
from slimrl_search.judge.calibration import Calibration, Labelled, calibrate, read_labelled

CALIBRATE = """\
A judge decides what is rewarded, so find out first how far it can be trusted: give it answers that
somebody has labelled, and see where it differs.

Compares judges with labelled answers: `match`, which compares words, and with --base-url a language
model beside it. Each line of the file is a JSON object:

  {"question": "When?", "response": "in 1874", "answer": "1874", "aliases": [], "label": "yes"}

`references`, a list, may take the place of `answer` and `aliases`.

agreement    the share of verdicts that are the label, with a 95% interval
kappa        agreement beyond chance: 0 is what chance would give, 1 is perfect, below 0.6 is little
false yes    called right, labelled wrong: what a policy learns to exploit
false no     called wrong, labelled right: noise, and slower learning
no verdict   the judge failed; such answers are in none of the other numbers, and in training their
             rollouts are dropped
"""
EXAMPLES = """\
examples:
  slimrl judge calibrate answers.jsonl
  slimrl judge calibrate answers.jsonl --base-url http://localhost:8081/v1 --model qwen2.5:7b
  slimrl judge calibrate answers.jsonl --output calibration.json

With --model, a key is read from the environment variable JUDGE_API_KEY. Verdicts kept from
training are not used here, and these are not kept.
"""
NUM_SHOWN = 5  # wrong verdicts of each sort that are printed


def run_judge(argv: Sequence[str]) -> int:
    """Run the `judge` command. For --help and wrong arguments, argparse raises SystemExit."""
    arguments = _parser().parse_args(argv)
    if bool(arguments.base_url) != bool(arguments.model):
        raise UserError("a language model needs both --base-url and --model; without either, words are compared.")
    labelled, console = read_labelled(arguments.file), RunConsole()
    calibrations = [calibrate("match", judge_of({}), labelled, len(labelled), lambda: None)]
    if arguments.base_url:
        calibrations.append(_by_model(labelled, arguments, console))
    console.show(for_terminal(_summary(calibrations), console.is_live))
    for calibration in calibrations:
        _show_mistakes(calibration, console)
    if arguments.output:
        content = {"file": str(arguments.file), "num": len(labelled), "judges": [_plain(one) for one in calibrations]}
        replace_file(arguments.output, [json.dumps(content, indent=1, ensure_ascii=False).encode()], "--output")
        console.note(f"all of it: {arguments.output}")
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="slimrl judge", description=CALIBRATE, epilog=EXAMPLES, formatter_class=raw)
    parser.add_argument("command", choices=["calibrate"])
    parser.add_argument("file", type=Path, help="labelled answers, .jsonl or .parquet")
    parser.add_argument("--base-url", default="", help="an OpenAI-compatible server, up to and with its /v1")
    parser.add_argument("--model", default="", help="the model's name there")
    parser.add_argument("--num-concurrent", type=int, default=16, help="questions open at once (default 16)")
    parser.add_argument("--timeout-s", type=float, default=50.0, help="seconds for a verdict (default 50)")
    parser.add_argument("--max-tokens", type=int, default=512, help="tokens of a reply (default 512)")
    parser.add_argument("--output", type=Path, help="write all numbers and all false verdicts there, as JSON")
    return parser


def _by_model(labelled: Sequence[Labelled], arguments: argparse.Namespace, console: RunConsole) -> Calibration:
    given = {name: vars(arguments)[name] for name in ("base_url", "model", "timeout_s", "num_concurrent", "max_tokens")}
    # Failures are counted as results here, and must not end the calibration.
    server = read_settings(JudgeServer, given | {"max_failures": len(labelled) + 1}, "judge")
    judge = LLMJudge(server, None)
    try:
        judge.check()
        with console.progress(f"asking {server.model}", len(labelled)) as bar:
            return calibrate(server.model, judge, labelled, server.num_concurrent, bar.advance)
    finally:
        judge.close()


def _summary(calibrations: Sequence[Calibration]) -> Cells:
    rows = [("judge", "agreement", "kappa", "false yes", "false no", "no verdict", "ms each")]
    for one in calibrations:
        counts = one.confusion
        rows.append(
            (
                one.judge,
                _with_interval(counts.agreement),
                "none" if math.isnan(counts.kappa) else f"{counts.kappa:.3f}",
                f"{counts.false_yes} of {counts.false_yes + counts.true_no}",
                f"{counts.false_no} of {counts.false_no + counts.true_yes}",
                str(counts.failed),
                f"{1000 * one.seconds / len(one.judged):.2g}",
            )
        )
    return Cells(f"{len(calibrations[0].judged)} labelled answers", tuple(rows))


def _with_interval(estimate: Estimate) -> str:
    return "none" if math.isnan(estimate.mean) else f"{estimate.mean:.3f} ({estimate.interval})"


def _show_mistakes(calibration: Calibration, console: RunConsole) -> None:
    for sort, mistakes in calibration.mistakes.items():
        shown = mistakes[:NUM_SHOWN]
        if shown:
            title = f"{calibration.judge}: {sort.replace('_', ' ')}, {len(shown)} of {len(mistakes)}"
            console.note(title, style="bold")
        for one in shown:
            labelled, because = one.labelled, f"  [{one.failure:.160}]" if one.failure else ""
            right = " | ".join(labelled.references)
            said = f"{labelled.question:.160}  {labelled.response!r:.200}  right: {right:.160}{because}"
            console.note(textwrap.indent(said, "  "))


def _plain(one: Calibration) -> dict[str, Any]:
    return {
        "judge": one.judge,
        "agreement": without_nan(asdict(one.confusion.agreement)),
        "kappa": without_nan(one.confusion.kappa),
        "counts": asdict(one.confusion),
        "seconds": one.seconds,
        **{sort: list(map(asdict, mistakes)) for sort, mistakes in one.mistakes.items()},
    }
