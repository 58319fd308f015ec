import math

import numpy as np
import pytest
from matplotlib.image import imread

from benchmarks.harness.seed_plots import plot_runs
from slimrl.errors import UserError
from slimrl.monitor.plots import draw_reward, draw_training, plot_run
from slimrl.monitor.series import common_steps, load_series, smooth
from slimrl.monitor.sinks import JsonlSink, Monitor


def write_run(run_dir, num_steps=15, nonfinite=False):
    with Monitor([JsonlSink(run_dir / "metrics.jsonl")]) as monitor:
        for step in range(num_steps):
            if step % 5 == 0:
                interval = {"held_out/reward_greedy_low": 0.2, "held_out/reward_greedy_high": 0.4}
                monitor.log(step, {"held_out/reward_greedy": 0.3, **interval})
            mean = math.nan if nonfinite else step / 20
            rest = {"guard/mismatch_kl": 0.0, "loss/entropy": mean, "optim/lr": 1e-5}
            monitor.log(step, {"reward/mean": mean, "reward/std": 0.1, **rest})
    return run_dir


def test_a_run_is_drawn_as_two_pictures_with_panels_only_for_what_was_logged(tmp_path):
    written = plot_run(write_run(tmp_path))
    assert sorted(path.name for path in written) == ["reward.png", "training.png"]
    assert all(imread(path).shape[1] > 1000 for path in written)
    series = load_series(tmp_path)
    axes = [axes for axes in draw_training(series, "run").axes if axes.axison]
    assert [one.get_title(loc="left") for one in axes] == [
        "reward", "policy entropy (nats)", "mismatch KL, sampler to trainer (nats)", "learning rate",
    ]  # fmt: skip
    [reward] = draw_reward(series, "run").axes
    assert reward.get_legend_handles_labels()[1] == ["± 1 std of rollouts", "training", "held-out, greedy"]


def test_every_temperature_of_the_held_out_evaluation_is_drawn(tmp_path):
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl")]) as monitor:
        for step in (0, 5):
            monitor.log(step, {f"held_out/reward_{mode}": 0.5 for mode in ("sampled_0.7", "sampled", "sampled_1.5")})
    [axes] = draw_reward(load_series(tmp_path), "run").axes
    handles, labels = axes.get_legend_handles_labels()
    assert labels == ["held-out, sampled", "held-out, sampled 0.7", "held-out, sampled 1.5"]
    assert len({handle.lines[0].get_color() for handle in handles}) == 3


@pytest.mark.parametrize("num_steps", [1, 5])
def test_a_short_run_is_drawn_as_it_was_logged_with_a_marker_at_each_step(tmp_path, num_steps):
    series = load_series(write_run(tmp_path, num_steps))
    [axes] = draw_reward(series, "run").axes
    [line] = [line for line in axes.lines if line.get_label() == "training"]
    assert (line.get_marker(), line.get_linestyle()) == ("o", "-")
    assert line.get_ydata().tolist() == [step / 20 for step in range(num_steps)]
    for axes in (axes for axes in draw_training(series, "run").axes if axes.axison):
        drawn = [line for line in axes.lines if line.get_marker() == "o"]
        assert drawn and all(len(line.get_xdata()) in (1, num_steps) for line in drawn)
        assert all(float(tick).is_integer() for tick in axes.get_xticks())


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [1, 2])
def test_a_run_without_a_finite_number_is_drawn_too(tmp_path, num_steps):
    assert len(plot_run(write_run(tmp_path, num_steps, nonfinite=True))) == 2


def test_runs_are_averaged_over_the_steps_they_share(tmp_path):
    steps, values_RS = common_steps(
        [(np.arange(3), np.array([1.0, 2.0, 3.0])), (np.arange(1, 4), np.array([4.0, 5.0, 6.0]))]
    )
    assert steps.tolist() == [1, 2]
    assert values_RS.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    paths = [write_run(tmp_path / "a", 12), write_run(tmp_path / "b", 15)]
    plot_runs(paths, tmp_path / "docs" / "runs.png", "two seeds")
    assert (tmp_path / "docs" / "runs.png").stat().st_size > 10_000


def test_smoothing_is_centred_and_leaves_out_what_is_not_finite():
    assert smooth(np.array([0.0, 3.0, 6.0, 9.0])).tolist() == [1.5, 3.0, 6.0, 7.5]
    assert smooth(np.array([0.0, math.nan, 6.0])).tolist() == [0.0, 3.0, 6.0]


def test_a_folder_without_metrics_is_a_clear_error_and_one_without_rewards_has_no_picture_of_them(tmp_path):
    with pytest.raises(UserError, match=r"metrics\.jsonl cannot be read"):
        plot_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="no metrics yet"):
        plot_run(tmp_path)
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl")]) as monitor:
        monitor.log(0, {"sft/loss": 1.0, "sft/val_loss": 1.1})
    assert [path.name for path in plot_run(tmp_path)] == ["training.png"]
