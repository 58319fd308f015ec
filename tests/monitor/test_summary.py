import io
import json
import math
from dataclasses import replace
from pathlib import Path

from slimrl.monitor.console import RunConsole
from slimrl.monitor.summary import Prediction, RunSummary, Stage, show_summary, write_summary
from slimrl.stats import Estimate

COMMAND = "uv run eval @ examples/reverse_text/eval.toml --model.name outputs/" + "long-name/" * 20
SUMMARY = RunSummary(
    stages=(
        Stage("base", {"greedy": Estimate(0.1, 0.05, 0.15, 200)}),
        Stage(
            "after RL", {"greedy": Estimate(0.75, 0.7, 0.8, 200), "temperature 1": Estimate(0.5, math.nan, math.nan, 1)}
        ),
    ),
    duration_s=754.0,
    tokens_sampled=1234567,
    tokens_trained=1200000,
    weights=Path("outputs/x/weights/step_100"),
    command=COMMAND,
)


def shown(summary: RunSummary) -> str:
    stream = io.StringIO()
    show_summary(RunConsole(stream), summary)
    return stream.getvalue()


def test_log_file_gets_the_whole_table_in_ascii():
    text = shown(SUMMARY)
    assert text.isascii()
    assert text.isprintable() or set(text) - {"\n"} == {char for char in text if char.isprintable()}
    assert "| greedy        | base     | 0.100 | 0.050 to 0.150 | 200 |" in text
    assert "|               | after RL | 0.750 | 0.700 to 0.800 | 200 |" in text
    assert "1,234,567 sampled" in text
    assert COMMAND in text  # in one piece, to be copied


def test_a_wrong_prediction_is_too_low_or_too_high():
    text = shown(replace(SUMMARY, predicted=Prediction(4.41, 2.0), measured=Prediction(5.4, 1.8)))
    assert "4.41 GB predicted, 5.40 GB measured (predicted 18% too low)\n" in text
    assert "2.0 s predicted, 1.8 s measured (predicted 11% too high)\n" in text
    text = shown(replace(SUMMARY, predicted=Prediction(5.4, 2.0), measured=Prediction(5.4, 0.0)))
    assert "5.40 GB measured\n" in text and "0.0 s measured\n" in text


def test_summary_file_has_the_same_numbers(tmp_path):
    write_summary(tmp_path / "summary.json", SUMMARY)
    content = json.loads((tmp_path / "summary.json").read_text())
    assert content["stages"][0] == {
        "name": "base",
        "held_out": {"greedy": {"mean": 0.1, "low": 0.05, "high": 0.15, "num": 200}},
    }
    assert content["stages"][1]["held_out"]["temperature 1"]["low"] is None
    assert content["command"] == COMMAND


def test_a_run_without_evaluation_still_says_where_the_weights_are():
    text = shown(RunSummary((), 60.0, 0, 10, Path("w"), "eval"))
    lines = ["time      1.0 min", "tokens    0 sampled, 10 trained", "weights   w", "evaluate  eval"]
    assert text.splitlines() == lines
