import os
import time

from packages.view.tests.made import make_run
from slimrl.config.reading.load import load
from slimrl.config.reading.saved import write_config
from slimrl.config.run import RLConfig
from slimrl_view.about import describe
from slimrl_view.curves import Curves
from slimrl_view.runs import open_runs


def described(path):
    [run] = open_runs([str(path)])
    return describe(run, Curves(run.path))


def test_a_run_is_described_by_the_settings_that_it_keeps(tmp_path):
    argv = "--model.name m --env.0.id reverse-text --env.1.id wordle --seed 3 --max_steps 9 --trainer.loss.type grpo"
    write_config(load(RLConfig, argv.split(), {}), tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 4, "reward/mean": 1}\n')
    found = described(tmp_path / "run")
    wanted = {"command": "rl", "algorithm": "grpo", "seed": 3, "max_steps": 9, "step": 4}
    wanted |= {"environments": ["reverse-text", "wordle"]}
    assert {name: found[name] for name in wanted} == wanted


def test_seeds_of_one_experiment_have_the_same_key(tmp_path):
    base = ["--model.name", "m", "--orchestrator.env.0.id", "reverse-text"]
    watched = ["--wandb.name", "second", "--ckpt.interval", "7", "--deployment.gpus", "0", "--seed", "1"]
    keys = []
    for name, more in (("first", []), ("second", watched), ("other", ["--trainer.optim.lr", "0.5"])):
        write_config(load(RLConfig, [*base, *more], {}), tmp_path / name)
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 0, "reward/mean": 1}\n')
        keys.append(described(tmp_path / name)["config_key"])
    assert keys[0] == keys[1] != keys[2]


def test_runs_without_settings_are_shown_and_are_not_seeds_of_each_other(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / name)
        (tmp_path / name / "config.toml").unlink()
    (tmp_path / "b" / "config.toml").write_text("not [ toml")
    found = [described(tmp_path / name) for name in ("a", "b")]
    assert found[0]["config_key"] != found[1]["config_key"]
    assert (found[1]["algorithm"], found[1]["environments"]) == ("", [])


def test_a_run_is_live_while_it_writes_and_has_no_summary(tmp_path):
    run = make_run(tmp_path / "run")
    assert described(run)["live"]
    for name in ("summary.json", "results.json"):  # the latter of an evaluation that has ended
        (run / name).write_text("{}")
        assert not described(run)["live"]
        (run / name).unlink()
    assert described(run)["live"]
    long_ago = time.time() - 3600
    for path in (run / "metrics.jsonl", run / "held_out", *(run / "rollouts").iterdir()):
        os.utime(path, (long_ago, long_ago))
    assert not described(run)["live"]
