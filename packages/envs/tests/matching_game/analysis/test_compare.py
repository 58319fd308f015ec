"""The analysis of questions, on runs whose numbers are known."""

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.plots import FEW
from slimrl.monitor.rollouts import RolloutRecord, rollout_to_json, write_rollouts
from slimrl.stats import Estimate
from slimrl.types import Message, Rollout
from slimrl_envs.matching_game.analysis.compare import (
    OVERALL,
    WITHIN,
    analyze,
    correlations,
    difference,
    joint_difference,
    main,
    verdict,
)
from slimrl_envs.matching_game.analysis.plots import draw_scatter, draw_training
from slimrl_envs.matching_game.analysis.runs import MEASURES, Run, read_run, values_of

pytestmark = pytest.mark.slow

PNG = b"\x89PNG"


def game(
    num_questions: int, reward: float, task_id: str = "train/0", num_after: int = 0, proposes: bool = True
) -> Rollout:
    """A finished game of so many questions and a proposal, and more questions and another proposal if it was lost."""
    asked = [f"[message] What is your score for Ava and number{k}{'?' * (1 + k % 2)}" for k in range(num_questions)]
    again = [f"[message] And for Daniel and number{k}?" for k in range(num_after)]
    proposal = "[propose] Proposal:\nBLEU: Ava"
    replies = [*asked, *([proposal] if proposes else []), *again, *([proposal] if again else [])]
    messages: list[Message] = [{"role": "user", "content": "Is this a question of the policy?"}]
    for reply in replies:
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": "[message] Ava for BLEU: 3. Which one else?"})
    num, questions = len(replies), float(num_questions + num_after)
    return Rollout(
        task_id=task_id,
        token_ids_T=(1, 2) * num,
        loss_mask_T=(False, True) * num,
        logprobs_T=(0.0, -0.5) * num,
        versions_T=(-1, 0) * num,
        reward=reward,
        turn_rewards=(0.0,) * (num - 1) + (reward,),
        messages=tuple(messages),
        metrics={
            "agreed": 1.0,
            "questions": questions,
            "distinct_questions": questions,
            "messages": float(num),
            "own_view": 0.7,
        },
    )


def failed(rollout: Rollout) -> Rollout:
    return replace(rollout, reward=math.nan, failure="partner_timeout", metrics={})


def recorded(path: Path, games: Callable[[int], list[Rollout]], num_steps: int = 20) -> Path:
    for step in range(1, num_steps + 1):
        write_rollouts(RunDir(path).rollouts_of(step), [RolloutRecord(one, (0.0,), "") for one in games(step)])
    return path


def learner(seed: int) -> Callable[[int], list[Rollout]]:
    """Asks more as training goes on, and earns more by it."""
    rng = random.Random(seed)

    def games(step: int) -> list[Rollout]:
        asked = [max(0, round(step / 5 + rng.gauss(0, 1))) for _ in range(8)]
        return [
            game(num, min(1.0, 0.5 + 0.05 * num + 0.02 * rng.random()), f"train/{k // 2}")
            for k, num in enumerate(asked)
        ]

    return games


def test_a_run_that_learns_to_ask_is_seen_to(tmp_path: Path) -> None:
    runs = [read_run(recorded(tmp_path / f"seed{seed}", learner(seed))) for seed in range(3)]
    for run in runs:
        assert verdict(difference(run, "before")) == "asks more"
        assert [len(run.early_games), len(run.late_games)] == [32, 32]
    found = correlations(runs)
    assert found[OVERALL].low > 0.8 and found[WITHIN].low > 0.8


def test_questions_that_come_of_losing_are_not_learning_to_ask(tmp_path: Path) -> None:
    """Who loses more and more is asked to ask again, and asks as much as ever before it proposes."""
    rng = random.Random(2)

    def games(step: int) -> list[Rollout]:
        lost = [rng.random() < step / 20 for _ in range(8)]
        return [game(2, 0.0 if gone else 0.9, f"train/{k}", 3 if gone else 0) for k, gone in enumerate(lost)]

    run = read_run(recorded(tmp_path, games))
    assert difference(run, "distinct").low > 0
    assert difference(run, "before").mean == 0.0 and verdict(difference(run, "before")) == "no clear change"


def test_learning_to_propose_is_not_asking_less(tmp_path: Path) -> None:
    """Who never proposes asks until the game is over."""

    def games(step: int) -> list[Rollout]:
        silent = [k >= step for k in range(8)]
        return [
            game(6 if never else 3, 0.0 if never else 0.9, f"train/{k}", 0, not never) for k, never in enumerate(silent)
        ]

    run = read_run(recorded(tmp_path, games))
    assert difference(run, "before").mean == 0.0
    assert difference(run, "proposed").low > 0 > difference(run, "distinct").high
    assert correlations([run])[OVERALL].num == sum(min(step, 8) for step in range(1, 21))


def test_a_run_without_a_proposal_has_too_little_to_say(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", lambda step: [game(1 + step % 3, 0.0, proposes=False)], num_steps=3)
    analyze([run], tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["change_of_questions"]["verdict"] == "too little to say"
    assert summary["runs"][0]["measures"]["proposed"]["end"]["mean"] == 0.0


@pytest.mark.slow
def test_the_report_says_what_a_run_began_with(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", learner(0), num_steps=2)
    *_, report = analyze([run], tmp_path / "out")
    assert "what it began with is not known" in report.read_text()
    (run / "config.toml").write_text('[model]\nname = "smollm2-135m"\n[warmup]\nmax_steps = 40\n')
    *_, report = analyze([run], tmp_path / "out")
    assert "after a warm-up of 40 supervised steps on a script's games, which teaches smollm2" in report.read_text()
    (run / "config.toml").write_text('[model]\nname = "smollm2-135m"\n[warmup]\nmax_steps = 0\n')
    *_, report = analyze([run], tmp_path / "out")
    assert "begun with smollm2-135m as it was, without a warm-up" in report.read_text()


@pytest.mark.parametrize(
    ("low", "mean", "high", "says"),
    [
        (0.1, 0.5, 0.9, "asks more"),
        (-0.9, -0.5, -0.1, "asks less"),
        (-0.1, 0.5, 1.1, "no clear change"),
        (math.nan, 0.0, math.nan, "no clear change"),
        (math.nan, 0.5, math.nan, "too little to say"),
        (math.nan, math.nan, math.nan, "too little to say"),
    ],
)
def test_a_verdict_goes_by_the_interval(low: float, mean: float, high: float, says: str) -> None:
    assert verdict(Estimate(mean, low, high, 8)) == says


def test_a_difference_by_hand(tmp_path: Path) -> None:
    """Groups have 1 and 3 questions in the first two of ten steps, 2 and 6 in the last two: variances of 4/3 and 16/3,
    of the means 1/3 and 4/3, and 75/17 degrees of freedom, whose factor lies between those of 5 and of 4."""

    def games(step: int) -> list[Rollout]:
        few, many = (1, 3) if step <= 2 else (2, 6)
        return [game(num, 0.5, f"train/{num}") for num in (few, few, many)]

    run = read_run(recorded(tmp_path, games, num_steps=10))
    found = difference(run, "before")
    assert (found.mean, found.num) == (pytest.approx(2.0), 8)
    assert 2.571 * math.sqrt(5 / 3) < found.high - 2 < 2.776 * math.sqrt(5 / 3)
    assert 2 - found.low == pytest.approx(found.high - 2)


def test_several_seeds_by_hand(tmp_path: Path) -> None:
    """They rise by 1, 2 and 3: a deviation of 1, and Student's factor for two degrees of freedom is 4.303."""

    def seed(rise: int) -> Run:
        return read_run(recorded(tmp_path / str(rise), lambda step: [game(1 + rise * (step > 10), 0.5)]))

    found = joint_difference([seed(rise) for rise in (1, 2, 3)], "before")
    assert (found.mean, found.num) == (pytest.approx(2.0), 3)
    assert found.high - 2 == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert 2 - found.low == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    alike = joint_difference([seed(4), replace(seed(4), name="other")], "before")
    assert alike.mean == 4.0 and verdict(alike) == "too little to say"  # two seeds that agree by chance


def test_a_correlation_within_groups_by_hand(tmp_path: Path) -> None:
    """Four games of each of three tasks. Less the means of their groups, questions are -1, -1, 1, 1 and rewards -0.1,
    0, 0, 0.1: a coefficient of the root of a half. Twelve pairs, of which each of three groups takes one."""

    def games(step: int) -> list[Rollout]:
        shapes = ((1, -0.1), (1, 0.0), (3, 0.0), (3, 0.1))
        return [game(num + k, 0.5 + 0.1 * k + extra, f"train/{k}") for k in range(3) for num, extra in shapes]

    found = correlations([read_run(recorded(tmp_path, games, num_steps=1))])[WITHIN]
    z, half = math.atanh(math.sqrt(0.5)), 1.96 / math.sqrt(9 - 3)
    assert (found.mean, found.num) == (pytest.approx(math.sqrt(0.5)), 9)
    assert (found.low, found.high) == pytest.approx((math.tanh(z - half), math.tanh(z + half)), abs=1e-4)


def test_the_roles_of_self_play_are_looked_at_apart_and_a_game_counts_once(tmp_path: Path) -> None:
    """The second player asks three more, which has nothing to do with the reward; within a role all of it has."""

    def games(step: int) -> list[Rollout]:
        asked = [1 + (step + k) % 3 for k in range(4)]
        roles = (("player 1", 0), ("player 2", 3))
        return [replace(game(num + more, 0.3 * num), role=role) for num in asked for role, more in roles]

    run = read_run(recorded(tmp_path, games))
    found = correlations([run])
    assert found[WITHIN].mean == pytest.approx(1.0) and found[WITHIN].num == (160 - 40) // 2
    assert difference(run, "before").num == 8  # groups, of both roles


def test_an_episode_is_counted_by_what_the_policy_said(tmp_path: Path) -> None:
    one = game(3, 0.9)
    one = replace(one, metrics={**one.metrics, "questions": 5.0, "distinct_questions": 4.0})
    run = read_run(recorded(tmp_path, lambda step: [one], num_steps=1))
    assert [values_of(run.episodes, measure) for measure in MEASURES] == [
        [3], [1.0], [4.0], [5.0], [3], [3], [3], [4], [0.9]
    ]  # fmt: skip


def test_a_copy_of_a_step_is_not_that_step(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", learner(0))
    before = read_run(run).episodes
    for ending in (".bak", ".tmp", "~"):
        RunDir(run).rollouts_of(3).with_name(f"{RunDir(run).rollouts_of(3).name}{ending}").write_text("nothing of it")
    assert read_run(run).episodes == before


def test_thoughts_are_not_said(tmp_path: Path) -> None:
    thinking = {"role": "assistant", "content": "<think>What? Why? [message]</think>\n[message] Ava for BLEU?"}
    one = replace(game(0, 0.5), messages=(thinking,))
    assert values_of(read_run(recorded(tmp_path, lambda step: [one], 1)).episodes, "marks") == [1]


def test_failures_and_other_environments_are_left_out_and_counted(tmp_path: Path) -> None:
    other = replace(game(1, 0.5), metrics={"num_words": 3.0})
    run = read_run(recorded(tmp_path, lambda step: [game(2, 0.5), failed(game(2, 0.5)), other, other], num_steps=5))
    assert (len(run.episodes), run.num_failed, run.num_others) == (5, 5, 10)


def test_everything_is_written(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / f"seed{seed}", learner(seed)) for seed in range(2)]
    pictures, texts = (written := analyze(runs, tmp_path / "out"))[:2], written[2:]
    assert [path.read_bytes()[:4] for path in pictures] == [PNG, PNG]
    summary, report = json.loads(texts[0].read_text()), texts[1].read_text()
    assert [run["name"] for run in summary["runs"]] == ["seed0", "seed1"]
    assert summary["runs"][0]["measures"]["before"]["difference"]["low"] > 0
    assert summary["correlation_of_questions_and_reward"][OVERALL]["num"] == 160
    assert "## seed1: asks more" in report and "160 games, steps 1 to 20." in report


def test_runs_without_any_variation_are_written_too(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", lambda step: [game(0, 0.0), failed(game(0, 0.0))], num_steps=2)
    *_, summary, report = analyze([run], tmp_path / "out")
    assert json.loads(summary.read_text())["correlation_of_questions_and_reward"][OVERALL]["mean"] is None
    assert "does not vary" in report.read_text() and "left out: 2 failed." in report.read_text()


@pytest.mark.slow
def test_runs_of_different_length_share_a_picture(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / f"{num}", learner(num), num_steps=num) for num in (3, 20)]
    assert analyze(runs, tmp_path / "out")


BAD_LINES = [
    {"metrics": None},
    {"metrics": {**game(2, 0.5).metrics, "questions": None}},
    {"token_ids": [1, 2]},
    {"token_ids": 7},
    {"reward": 10**400},
    {"reward": "much"},
    {"messages": ["hello"]},
    {"messages": [{"role": "assistant", "content": None}]},
]
BAD_RUNS: dict[str, tuple[dict[str, str], str]] = {
    "nothing": ({}, r"no rollouts/step_\*\.jsonl"),
    "begun": ({"rollouts/step_000001.jsonl": ""}, r"has no game yet: its rollouts/step_\*\.jsonl are empty"),
    "from elsewhere": (
        {"rollouts/step_000001.jsonl": '{"step": 2, "loss": 0.5}'},
        r"step_000001\.jsonl does not hold .*: KeyError: 'task_id'.*`--log_dir`",
    ),
    **{
        f"config {number}": ({"config.toml": text}, r"config\.toml is no config .* `(model|warmup)` is ")
        for number, text in enumerate(['model = "smollm2-135m"', "warmup = 40", "[[model]]\nname = 'a'"])
    },
    **{
        f"line {number}": (
            {"rollouts/step_000002.jsonl": json.dumps(rollout_to_json(RolloutRecord(game(2, 0.5), (0.0,), "")) | bad)},
            r"step_000002\.jsonl does not hold rollouts as `rl` records them",
        )
        for number, bad in enumerate(BAD_LINES)
    },
}


@pytest.mark.parametrize("name", BAD_RUNS)
def test_a_directory_without_games_is_a_clear_error(name: str, tmp_path: Path) -> None:
    files, says = BAD_RUNS[name]
    if name.startswith(("config", "line")):
        recorded(tmp_path, learner(0), num_steps=1)
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n" if text else "")
    with pytest.raises(UserError, match=says):
        analyze([tmp_path], tmp_path / "out")


@pytest.mark.parametrize(
    ("rollout", "says"),
    [
        (
            replace(game(1, 0.5, "train-7"), metrics={"num_words": 3.0}),
            r"none of which is of `matching-game`.*`train-7`.*num_words",
        ),
        (failed(game(1, 0.5)), "all of its 3 rollouts failed"),
    ],
)
def test_a_run_without_finished_games_is_a_clear_error(rollout: Rollout, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        analyze([recorded(tmp_path / "run", lambda step: [rollout], num_steps=3)], tmp_path / "out")


def test_a_run_that_is_given_twice_is_a_clear_error(tmp_path: Path) -> None:
    """It would count as two seeds in perfect agreement."""
    run = recorded(tmp_path / "run", learner(0), num_steps=1)
    (tmp_path / "link").symlink_to(run)
    for again in (run, tmp_path / "run" / ".." / "run", tmp_path / "link"):
        with pytest.raises(UserError, match=r"`--log_dir` has a run more than once"):
            analyze([run, again], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_mistake_and_an_interruption_end_the_command_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["--log_dir", str(tmp_path / "nowhere"), "--output_dir", str(tmp_path / "out")]
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error: there is no directory")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slimrl_envs.matching_game.analysis.compare.read_run", interrupted)
    assert main(argv) == 130
    assert capsys.readouterr().err == "interrupted; run it again\n"


@pytest.mark.parametrize(("num_runs", "num_steps"), [(1, 20), (1, 3), (3, 20), (2, 3)])
def test_pictures_explain_themselves_and_begin_at_0(tmp_path: Path, num_runs: int, num_steps: int) -> None:
    dirs = [recorded(tmp_path / f"seed{seed}", learner(seed), num_steps) for seed in range(num_runs)]
    runs = [read_run(directory) for directory in dirs]
    training, scatter = draw_training(runs, "asks more"), draw_scatter(runs, correlations(runs))
    for figure, title in ((training, "the policy asks more"), (scatter, "Do games with more questions earn more?")):
        assert title in figure.get_suptitle()
        assert any("seed0" in text.get_text() for text in figure.texts)
        (legend,) = figure.legends
        labels = [text.get_text() for text in legend.get_texts()]
        assert labels and len(labels) == len(set(labels)) and all(labels)
        for axes in figure.axes:
            assert axes.get_ylim()[0] == 0 and axes.get_xlabel()
    assert any("smoothed" in text.get_text() for text in training.legends[0].get_texts()) == (num_steps >= FEW)
    assert len({axes.get_ylim() for axes in training.axes[:3]}) == 1  # what is counted has one scale
    assert training.axes[3].get_ylim()[1] == pytest.approx(1.02)


def test_games_without_a_question_are_drawn(tmp_path: Path) -> None:
    run = read_run(recorded(tmp_path / "silent", lambda step: [game(0, 0.5)], num_steps=3))
    assert draw_scatter([run], correlations([run])).axes[0].get_xlim()[0] == -0.5
    assert draw_training([run], "asks as before").axes[0].get_ylim() == (0, 1)
