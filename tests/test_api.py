"""slimrl from a script or a notebook: the same runs as by the commands, and what they return."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import slimrl

SETTINGS = {
    "max_steps": 2,
    "seq_len": 160,
    "model": {"dtype": "float32", "num_threads": 1},
    "env": [{"id": "reverse-text"}],
    "orchestrator.batch_size": 8,
    "orchestrator.rollouts_per_example": 4,
    "orchestrator.sampling.max_tokens": 4,
    "trainer": {"loss": {"type": "reinforce"}, "micro_batch_tokens": 256},
    "eval": {"num_examples": 4, "temperatures": (0.0, 1.0)},
}


class Shout:
    """A taskset that is written where it is used, as in a notebook."""

    def tasks(self, split):
        return [slimrl.Task(f"{split}/{number}", {"n": number}) for number in range(8)]

    def environment(self, task):
        return ShoutEpisode(task.data["n"])


class ShoutEpisode:
    def __init__(self, number):
        self.number = number

    async def start(self):
        return [{"role": "user", "content": f"Shout the number {self.number}!"}]

    async def step(self, reply):
        return slimrl.Turn(done=True, reward=reply.count("!") / (1 + len(reply)))


@pytest.mark.nightly
def test_a_run_returns_metrics_intervals_and_weights(tiny_dir: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "model.name": tiny_dir, "output_dir": tmp_path / "run"}
    result = slimrl.rl(**settings)
    assert result.output_dir == tmp_path / "run"
    assert [line["step"] for line in result.metrics] == [0, 1, 2]
    assert "loss/policy" in result.metrics[0]
    assert set(result.held_out) == {"before RL", "after RL"}
    greedy = result.held_out["after RL"]["greedy"]
    assert greedy.num == 4 and greedy.low <= greedy.mean <= greedy.high
    assert result.weights == tmp_path / "run" / "weights" / "step_2"
    first, *lines = repr(result).splitlines()
    assert first == f"TrainingResult in {tmp_path}/run: 3 lines of metrics, weights {result.weights}"
    assert [line.partition(": ")[0] for line in lines] == [
        f"  {stage} RL, {mode}" for stage in ("before", "after") for mode in ("greedy", "sampled")
    ]

    found = slimrl.evaluate(
        env=[{"id": "reverse-text"}],
        num_examples=4,
        temperatures=[0.0],
        seq_len=160,
        output_dir=tmp_path / "eval",
        **{"model.name": result.weights, "model.dtype": "float32"},
    )
    assert found.rewards[str(result.weights)]["greedy"].num == 4
    assert repr(found).splitlines()[1].startswith(f"  {result.weights}, greedy: ")


def test_files_settings_and_classes_are_read_as_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}
    monkeypatch.setattr("slimrl.api.run_rl", lambda resolved: given.update(config=resolved.config))
    monkeypatch.setattr("slimrl.api._read_training", lambda output_dir: output_dir)
    (tmp_path / "rl.toml").write_text('max_steps = 7\nseed = 3\n[[orchestrator.env]]\nid = "reverse-text"\n')
    slimrl.rl(tmp_path / "rl.toml", seed=4, trainer={"optim": {"lr": 1e-3}})
    config = given["config"]
    assert (config.max_steps, config.seed, config.trainer.optim.lr) == (7, 4, 1e-3)
    slimrl.rl(env=Shout)  # a taskset needs no file
    (env,) = given["config"].orchestrator.env
    assert env.id == f"{__name__}:Shout"


@pytest.mark.nightly
def test_a_notebook_has_an_event_loop_of_its_own(tiny_dir: Path, tmp_path: Path) -> None:
    async def cell() -> slimrl.TrainingResult:
        settings = {**SETTINGS, "max_steps": 1, "env": [Shout], "model.name": tiny_dir}
        return slimrl.rl(**settings, output_dir=tmp_path / "run")

    assert len(asyncio.run(cell()).metrics) == 2


def test_what_a_run_raises_in_its_thread_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(resolved: object) -> int:
        raise slimrl.UserError("no disk")

    monkeypatch.setattr("slimrl.api.run_rl", fail)

    async def cell() -> None:
        slimrl.rl(env=[Shout])

    with pytest.raises(slimrl.UserError, match="no disk"):
        asyncio.run(cell())


def test_a_result_is_read_from_the_runs_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimrl.api.run_rl", lambda resolved: 0)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    for name in ("step_5", "step_12", "step_12_old", "step_\u00b3"):
        (tmp_path / "weights" / name).mkdir(parents=True)
    assert slimrl.rl(env=[Shout], output_dir=tmp_path).weights == tmp_path / "weights" / "step_12"
    for content in ("{", "[]", "{}", '{"stages": [{"name": "a", "held_out": {"greedy": 3}}]}'):
        (tmp_path / "summary.json").write_text(content)
        with pytest.raises(slimrl.UserError, match=r"summary\.json is no summary of a run"):
            slimrl.rl(env=[Shout], output_dir=tmp_path)


def test_mistakes_name_the_setting() -> None:
    with pytest.raises(slimrl.UserError, match="max_step"):
        slimrl.rl(env=[Shout], max_step=3)
    with pytest.raises(slimrl.UserError, match="expected a settings file"):
        slimrl.rl(3)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="no attribute `trains`"):
        slimrl.trains()


def test_importing_slimrl_loads_nothing_heavy() -> None:
    program = "import sys, slimrl; print(*sorted({'torch', 'numpy', 'pydantic'} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
