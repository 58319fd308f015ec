"""A run on other people's environments that is killed and resumed is the same: bit for bit, or but for rounding."""

import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from packages.envs.tests.openenv.installed import PYTHON, server_of
from packages.envs.tests.verifiers.plays import HAS_VERIFIERS
from slimrl.cli import run
from tests.commands.killed import kill_and_resume
from tests.commands.test_rl import STEPS, reproducible, rl_flags

pytestmark = pytest.mark.filterwarnings("default")  # their dependencies', on import
ROOT = Path(__file__).parents[3]
TASKSETS = Path(__file__).parent / "verifiers" / "tasksets"
SHOP = ROOT / "examples" / "your_task"
TOOLS = f'path="{SHOP / "shop.jsonl"}", tools=[{{mcp="{sys.executable} {SHOP / "server.py"}"}}], reward="number"'
DOORS = {
    "reasoning_gym": '[{id="reasoning-gym:chain_sum"}]',
    "textarena": '[{id="textarena:GuessTheNumber-v0"}]',
    "mcp": f'[{{id="dataset", args={{{TOOLS}}}}}]',
    "verifiers": '[{id="verifiers:slim-guess-v1", args={num_tasks=60}}]',
    "openenv": '[{id="openenv:BASE"}]',
}
WITHOUT_EXPERT = ("verifiers", "openenv")


def is_installed(door: str) -> bool:
    if door == "openenv":
        return bool(PYTHON)
    if door == "verifiers":
        return HAS_VERIFIERS
    # verifiers needs an mcp from before the one that the extra names.
    return not (door == "mcp" and HAS_VERIFIERS) and importlib.util.find_spec(door) is not None


@pytest.mark.nightly
@pytest.mark.parametrize("door", DOORS)
def test_a_killed_run_is_the_same(door: str, tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_installed(door):
        pytest.skip(f"{door} is not installed")
    monkeypatch.syspath_prepend(TASKSETS)
    monkeypatch.setenv("PYTHONPATH", str(TASKSETS))  # also of the run that is killed
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with server_of("served:guess") if door == "openenv" else nullcontext("") as base:
        more = ["--orchestrator.env", DOORS[door].replace("BASE", base)]
        more += ["--seq_len", "768", "--orchestrator.max_turns", "3"]
        more += ["--warmup.max_steps", "0"] if door in WITHOUT_EXPERT else []
        assert run(rl_flags(tiny_dir, whole, *more)) == 0
        kill_and_resume(rl_flags(tiny_dir, killed, *more), killed / "metrics.jsonl", 4)
    if door == "openenv":
        # Its answers come over a socket: which replies are decoded together depends on the clock.
        assert [step for step, _ in reproducible(killed)] == [step for step, _ in reproducible(whole)]
        for (_, ours), (_, theirs) in zip(reproducible(killed), reproducible(whole), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5, nan_ok=True)
    else:
        assert reproducible(killed) == reproducible(whole)
        final = f"weights/step_{STEPS}/model.safetensors"
        assert (killed / final).read_bytes() == (whole / final).read_bytes()
    drops = {name for _, metrics in reproducible(whole) for name, value in metrics.items() if "drop/" in name and value}
    assert not drops
