"""`slimrl plot`: runs from their files, over one another."""

import math

import pytest
from matplotlib.image import imread

from slimrl.cli import run
from slimrl.config.reading.load import load
from slimrl.config.reading.saved import write_config
from slimrl.config.run import RLConfig
from slimrl.monitor.sinks import JsonlSink, Monitor
from slimrl_tools.curves.overlay import draw_runs, group_runs

ENV = ["--orchestrator.env", '[{id="reverse-text"}]']


def write_run(directory, *flags, num_steps=20, **extra):
    write_config(load(RLConfig, [*ENV, "--output_dir", str(directory), *flags], {}), directory)
    with Monitor([JsonlSink(directory / "metrics.jsonl")]) as monitor:
        for step in range(num_steps):
            monitor.log(step, {"reward/mean": step / 20, "loss/entropy": 1 - step / 40, **extra})
        bounds = {"held_out/reward_greedy_low": 0.5, "held_out/reward_greedy_high": 0.75}
        monitor.log(num_steps, {"held_out/reward_greedy": 0.625, **bounds})
    return directory


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes if axes.axison]


def test_runs_that_differ_in_the_seed_alone_are_one_band(tmp_path):
    seeds = [write_run(tmp_path / f"lr_seed_{seed}", "--seed", str(seed)) for seed in range(3)]
    other = write_run(tmp_path / "high", "--trainer.optim.lr", "1e-3")
    assert [(group.label, len(group.runs)) for group in group_runs([*seeds, other])] == [("lr_seed_0", 3), ("high", 1)]
    figure = draw_runs([*seeds, other], ["reward/mean"])
    [axes] = figure.axes
    assert axes.get_legend_handles_labels()[1] == ["lr_seed_0 (3 runs)", "high"]
    assert len(axes.collections) == 1  # the band of the seeds; one run has none


def test_a_few_steps_are_a_line_and_evaluations_are_dotted(tmp_path):
    run = write_run(tmp_path / "short", num_steps=4)
    figure = draw_runs([run], ["reward/mean", "held_out/reward_greedy"])
    lines = [axes.lines[0] for axes in figure.axes]
    assert [(line.get_linestyle(), line.get_marker()) for line in lines] == [("-", "o"), (":", "o")]
    assert lines[0].get_ydata().tolist() == [0.0, 0.05, 0.1, 0.15]


def test_directories_of_one_name_are_told_apart_by_those_around_them(tmp_path):
    runs = [write_run(tmp_path / name / "rl", "--trainer.optim.lr", lr) for name, lr in (("a", "1e-4"), ("b", "1e-5"))]
    assert [group.label for group in group_runs(runs)] == ["a/rl", "b/rl"]


def test_several_runs_have_a_panel_for_each_reward(tmp_path):
    runs = [write_run(tmp_path / name, "--trainer.optim.lr", lr) for name, lr in (("a", "1e-4"), ("b", "1e-5"))]
    assert titles(draw_runs(runs)) == ["reward/mean", "held_out/reward_greedy"]


@pytest.mark.slow
def test_the_picture_of_one_run_is_its_training_picture(tmp_path, capsys):
    directory = write_run(tmp_path / "run")
    assert run(["plot", str(directory)]) == 0
    assert capsys.readouterr().out == f"{directory / 'metrics.png'}\n"
    assert imread(directory / "metrics.png").shape[1] > 1000
    assert titles(draw_runs([directory])) == ["reward", "policy entropy (nats)"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["svg", "pdf", "webp"])
def test_the_ending_of_the_file_is_its_format(tmp_path, ending):
    directory, picture = write_run(tmp_path / "run", **{"loss/policy": math.nan}), tmp_path / "new" / f"a.{ending}"
    assert run(["plot", str(directory), str(directory), "--output", str(picture), "--metric", "loss/policy"]) == 0
    assert picture.stat().st_size > 1000
    assert [path.name for path in picture.parent.iterdir()] == [picture.name]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metric", "reward/meen"), "Did you mean `reward/mean`?"),
        (("--output", "a.foo"), "--output a.foo does not end in a format of pictures, such as `.png`"),
        (("nowhere",), "nowhere/metrics.jsonl cannot be read"),
    ],
)
def test_mistakes_are_answered_with_what_to_write(tmp_path, capsys, words, said):
    assert run(["plot", str(write_run(tmp_path / "run")), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_run_that_is_being_written_is_drawn_as_far_as_it_is(tmp_path):
    directory = write_run(tmp_path / "run")
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "reward/me')
    assert run(["plot", str(directory)]) == 0
