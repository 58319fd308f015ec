"""The model stretched to a run, and the division of devices that it proposes."""

from dataclasses import replace

import pytest

from packages.tools.tests.plan.made import ALONE, COSTS, RECIPE, SPEEDS, equal, uneven
from slimrl.errors import UserError
from slimrl.types import Metrics
from slimrl_tools.plan.pipeline import Question, RecordedRun, calibrate, choose, draw_pipeline, pipeline_report
from slimrl_tools.plan.replica import Costs
from slimrl_tools.plan.simulate import Placement, simulate

pytestmark = pytest.mark.slow


TRUTH = replace(COSTS, sampling=3.0, training=0.5)
PROCESSES = Placement("processes", 0, shares_device=True)


def made_by(placement: Placement, costs: Costs) -> RecordedRun:
    """A run as the model itself would have recorded it."""
    outcome = simulate(placement, RECIPE, costs, uneven(), steps=40)
    rest_s = costs.weights_s + costs.batch_s
    metrics = {
        "time/step_s": outcome.step_s,
        "time/train_s": outcome.train_s,
        "time/rollout_s": outcome.step_s - outcome.train_s - rest_s,
        "async/sampler_idle": outcome.sampler_idle + costs.weights_s / outcome.step_s,
    }
    if placement.kind == "processes":
        metrics["time/wait_weights_s"] = outcome.train_s + costs.weights_s
    return RecordedRun(placement, RECIPE, uneven(), [metrics])


@pytest.mark.parametrize(
    ("placement", "truth"),
    [
        (ALONE, TRUTH),
        (replace(ALONE, level=1), TRUTH),
        (PROCESSES, replace(TRUTH, weights_s=0.75, batch_s=0.25)),
    ],
    ids=["level 0", "level 1", "processes"],
)
def test_speeds_are_found_again_in_a_run(placement: Placement, truth: Costs) -> None:
    found = calibrate(SPEEDS, made_by(placement, truth))
    assert found.training == pytest.approx(truth.training)
    assert found.sampling == pytest.approx(truth.sampling, rel=0.05)
    assert (found.weights_s, found.batch_s) == pytest.approx((truth.weights_s, truth.batch_s))


@pytest.mark.parametrize("shown", ["max_async_level = 0", "time/step_s"])
def test_a_run_that_does_not_tell_its_times_is_refused(shown: str) -> None:
    hidden = made_by(replace(PROCESSES, level=1), TRUTH)
    empty: list[Metrics] = [{"reward/mean": 1.0}]
    with pytest.raises(UserError, match=shown):
        calibrate(SPEEDS, hidden if "level" in shown else RecordedRun(ALONE, RECIPE, uneven(), empty))


def question(**changes: object) -> Question:
    """Ten devices' worth of sampling for each one of training, if these are divided without loss."""
    costs = Costs(replace(SPEEDS, decode_step=0.0, decode_row=0.1), training=1.6)
    asked = Question(replace(RECIPE, batch_size=64), costs, equal(), level=2, level_alone=0, slots=64)
    return replace(asked, **changes)  # type: ignore[arg-type]


def test_devices_are_divided_as_the_work_is() -> None:
    # A step samples 64 s and trains 6.4 s long: ten replicas to a rank.
    chosen = choose(question(), 11)
    assert (chosen.placement.num_samplers, chosen.placement.num_trainers) == (10, 1)
    assert chosen.step_s == pytest.approx(6.4, rel=0.1)
    assert choose(question(), 1).placement.kind == "one-process"


def test_the_trainer_gets_as_many_as_its_memory_needs() -> None:
    assert choose(question(least_trainers=4), 8).placement.num_trainers >= 4
    with pytest.raises(UserError, match="needs 4 such devices"):
        choose(question(least_trainers=4), 4)


@pytest.mark.slow
def test_the_report_says_what_is_simulated_and_what_it_costs() -> None:
    asked = question()
    outcomes = [choose(asked, num) for num in (1, 4, 12, 40)]
    text = "\n".join(pipeline_report(asked, outcomes, "an imaginary device", price=2.0))
    assert text.startswith("SIMULATED, not measured")
    assert "in turn" in text and "Cheapest: " in text
    assert f"{100 * outcomes[1].device_hours * 2.0:,.2f}" in text
    assert "90% of the most steps an hour: 40 GPUs (33 replicas + 7 ranks)" in text


def test_a_plot_says_that_it_is_simulated() -> None:
    curves = {f"level {level}": [choose(question(level=level), num) for num in (1, 3)] for level in (0, 2)}
    figure = draw_pipeline(curves, 0.0, "an imaginary device")
    texts = [figure.get_suptitle(), *(axes.get_xlabel() for axes in figure.axes)]
    assert all("simulated" in text for text in texts)
    assert len(figure.axes) == 3
