import json

from slimrl.monitor.metrics import METRICS
from slimrl.monitor.sinks import JsonlSink
from slimrl_view.curves import Curves, registry


def append(path, *lines):
    with path.open("a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


def test_metrics_are_read_as_they_come(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    curves = Curves(tmp_path)
    assert curves.since(None) == {"series": {}, "last_step": None}
    sink.write(0, {"reward/mean": 0.5, "loss/policy": float("nan")})
    assert curves.since(None) == {"series": {"reward/mean": [[0, 0.5]], "loss/policy": [[0, None]]}, "last_step": 0}
    sink.write(1, {"reward/mean": 0.75})
    assert (curves.num_lines(), curves.last_step()) == (2, 1)
    assert curves.since(1)["series"] == {"reward/mean": [[1, 0.75]]}
    sink.close()


def test_the_last_value_of_a_step_counts(tmp_path):
    append(tmp_path / "metrics.jsonl", {"step": 1, "a/b": 1.0}, {"step": 0, "a/b": 0.0}, {"step": 1, "a/b": 2.0})
    assert Curves(tmp_path).since(None)["series"] == {"a/b": [[0, 0.0], [1, 2.0]]}


def test_a_resumed_run_is_read_anew(tmp_path):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    for step in range(5):
        sink.write(step, {"reward/mean": float(step)})
    sink.close()
    curves = Curves(tmp_path)
    assert curves.num_lines() == 5
    sink = JsonlSink(tmp_path / "metrics.jsonl", first_step=2)
    sink.write(2, {"reward/mean": 9.0})
    sink.close()
    assert curves.since(None) == {"series": {"reward/mean": [[0, 0.0], [1, 1.0], [2, 9.0]]}, "last_step": 2}
    for content, wanted in (('{"step": 7, "a/b": 6}\n', {"a/b": [[7, 6.0]]}), (None, {})):  # shorter, and gone
        path = tmp_path / "metrics.jsonl"
        path.unlink() if content is None else path.write_text(content)
        assert curves.since(None)["series"] == wanted


def test_lines_that_are_none_are_left_out_and_an_incomplete_one_waits(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "a/b": 1}\nnonsense\n[1]\n{"a/b": 1}\n{"step": "x", "a/b": 1}\n{"step": 1, "a/b"')
    curves = Curves(tmp_path)
    assert curves.since(None)["series"] == {"a/b": [[0, 1.0]]}
    with path.open("a") as file:
        file.write(": 2}\n")
    assert curves.since(None)["series"] == {"a/b": [[0, 1.0], [1, 2.0]]}


def test_the_warm_up_adds_its_supervised_metrics_alone(tmp_path):
    (tmp_path / "warmup").mkdir()
    append(tmp_path / "warmup" / "metrics.jsonl", {"step": 0, "sft/loss": 2.0, "optim/lr": 1.0})
    append(tmp_path / "metrics.jsonl", {"step": 0, "optim/lr": 0.5})
    assert Curves(tmp_path).num_lines() == 2
    assert Curves(tmp_path).since(None) == {"series": {"sft/loss": [[0, 2.0]], "optim/lr": [[0, 0.5]]}, "last_step": 0}


def test_the_registry_is_whole():
    found = registry()
    assert [metric["name"] for metric in found["metrics"]] == [metric.name for metric in METRICS]
    assert found["panels"][0]["names"][0] == "reward/mean"
    ranges = {metric["name"]: (metric["low"], metric["high"]) for metric in found["metrics"]}
    assert ranges["reward/zero_signal_groups"] == (None, 0.5) and ranges["reward/mean"] == (None, None)
    possible = {metric["name"]: (metric["least"], metric["most"]) for metric in found["metrics"]}
    assert possible["reward/zero_signal_groups"] == (0.0, 1.0) and possible["reward/mean"] == (None, None)
    assert possible["time/step_s"] == (0.0, None) and possible["loss/value_explained"] == (None, 1.0)
    assert json.dumps(found, allow_nan=False)
