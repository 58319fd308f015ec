"""The training and the evaluation of `scripts/`, in this process: a tiny model, ten pages, an embedder of letters."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from packages.search.tests.retrieval.test_index import Letters
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl_search.scripts.wiki_search import TRAIN, TRAIN_FLAGS, evaluate, new_source, parse, train, train_flags
from slimrl_search.services.judges import DEFAULT_URL

pytest.importorskip("chromadb", reason="the extra [search] is not installed")


@pytest.fixture
def few_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment's variables; runs go to the current directory."""
    monkeypatch.setattr("slimrl_search.wiki_search.environment.SentenceEmbedder", Letters)
    monkeypatch.chdir(tmp_path)
    return {"DEV": "1", "DATA_DIR": str(tmp_path / "data")}


@pytest.mark.nightly
def test_training_leaves_a_run_with_metrics_plots_and_checkpoints(few_pages, tiny_dir: Path, capsys):
    flags = ["--model_name", str(tiny_dir), "--max_new_tokens", "8", "--num_epochs", "2", "--live-plot"]
    assert train([*flags, "--model.dtype", "float32", "--model.num_threads", "1"], few_pages) == 0
    (run_dir,) = Path("runs").iterdir()
    assert run_dir.name.startswith("train_2") and len(run_dir.name) == len("train_20260101_120000")
    names = {path.name for path in run_dir.iterdir()}
    assert {"metrics.json", "live.png", "reward.png", "training.png", "checkpoints", "weights", "rollouts"} <= names
    metrics = json.loads((run_dir / "metrics.json").read_text())
    assert [step["step"] for step in metrics] == [*range(6), 6]  # three questions, twice, and what was held out
    assert all(step["rollout/num"] == 2 and step["loss/tokens"] > 0 for step in metrics[:6])
    assert "held_out/reward_greedy" in metrics[0] and "held_out/reward_greedy" in metrics[-1]
    assert "no window: " in capsys.readouterr().out


@pytest.mark.nightly
def test_evaluation_stands_beside_baselines(few_pages, tiny_dir: Path):
    flags = ["--model", str(tiny_dir), "--num_samples", "3", "--max_new_tokens", "100", "--max_turns", "4"]
    assert evaluate([*flags, "--split", "validation", "--model.dtype", "float32"], few_pages) == 0
    (run_dir,) = Path("runs").iterdir()
    results = json.loads((run_dir / "results.json").read_text())
    assert results["split"] == "validation"
    assert list(results["evaluations"]) == [str(tiny_dir), "random", "expert"]
    assert results["evaluations"]["expert"]["scripted"]["reward"]["mean"] == 1.0
    scores = results["evaluations"]["expert"]["scripted"]["scores"]
    wanted = {"correct", "tool_calls", "right_page_first", "right_page", "invalid_calls", "turns", "tokens"}
    assert wanted <= set(scores) and all({"mean", "low", "high", "num"} <= set(scores[name]) for name in wanted)
    report = (run_dir / "report.md").read_text()
    assert "right_page_first" in report and f"{tiny_dir} against random" in report
    failures = (run_dir / "failures.md").read_text()
    assert (
        "3 of 3 episodes failed" in failures and "0 of 3 episodes failed" in failures and "The answer is: " in failures
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--questions", "q.jsonl"), "`questions` belong to a `corpus` of one's own"),
        (("--num_samples", "5000"), "10 pages give only"),
    ],
)
def test_a_flag_that_cannot_act_is_refused(few_pages, flags: tuple[str, ...], said: str):
    for command in (train, evaluate):
        with pytest.raises(UserError, match=said):
            command([*flags], few_pages)


def resolved(environ: dict[str, str], *more: str) -> RLConfig:
    options, _ = parse("train.py", TRAIN, TRAIN_FLAGS, [], environ)
    return load(RLConfig, [*train_flags(options, environ), *more], {}).config


def test_the_loop_is_reinforce_with_a_constant_baseline_a_question_a_step():
    config = resolved({})
    choices = config.trainer.loss.resolve()
    assert (choices.advantage, choices.policy, choices.baseline) == ("reinforce", "reinforce", 0.5)
    orchestrator = config.orchestrator
    assert (config.max_steps, orchestrator.batch_size, orchestrator.rollouts_per_example) == (3, 2, 2)
    assert (orchestrator.max_turns, orchestrator.sampling.max_tokens, orchestrator.resample_factor) == (3, 200, 1)
    assert not config.wandb.is_on and "judge" not in orchestrator.env[0].args
    assert resolved({}, "--seed", "3").seed == 3


def test_every_variable_has_an_effect(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr("slimrl_search.scripts.wiki_search.find_spec", lambda name: SimpleNamespace(origin="wandb.py"))
    variables = {"DATA_DIR": "d", "JUDGE_MODEL": "m", "JUDGE_BASE_URL": "http://h/v1"}
    variables |= {"WANDB_PROJECT": "p", "WANDB_ENTITY": "e"}
    config = resolved(variables)
    args = config.orchestrator.env[0].args
    assert args["data_dir"] == "d" and args["judge"] == {"base_url": "http://h/v1", "model": "m"}
    assert (config.wandb.is_on, config.wandb.project, config.wandb.entity) == (True, "p", "e")
    monkeypatch.setattr("slimrl_search.scripts.wiki_search.find_spec", lambda name: SimpleNamespace(origin=None))
    assert not resolved(variables).wandb.is_on  # a directory called wandb, as W&B leaves it
    said = capsys.readouterr().err
    assert "WANDB_PROJECT is p, but the package wandb is not installed" in said and "--extra wandb" in said
    own = resolved({"JUDGE_MODEL": "m", "JUDGE_BASE_URL": ""}).orchestrator.env[0].args["judge"]
    assert own == {"base_url": DEFAULT_URL, "model": "m"}
    assert new_source({"DEV": "1"}).num_pages == 10 and new_source({}).num_pages == 1000
