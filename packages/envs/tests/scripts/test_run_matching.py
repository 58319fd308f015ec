"""The script that starts SLIME: what it passes on, and what it says where something is missing. Nothing is started."""

import os
import shlex
import stat
import subprocess
from argparse import Namespace
from pathlib import Path
from pkgutil import resolve_name

import pytest
import yaml

from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.slime import generate
from slimrl_envs.slime.env import build_env
from slimrl_envs.slime.filter import no_failed_game
from slimrl_envs.slime.rows import Settings

ROOT = Path(__file__).parents[4]
SCRIPT = ROOT / "scripts/run_matching.sh"
CONFIG = ROOT / "configs/matching_config.yaml"


def run(environ: dict[str, str], *argv: str) -> "subprocess.CompletedProcess[str]":
    base = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(["bash", str(SCRIPT), *argv], env=base | environ, capture_output=True, text=True, check=False)


def value_of(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_what_is_passed_on() -> None:
    done = run({"DRY_RUN": "1", "NUM_GPUS": "4", "SAVE_DIR": "/a directory"}, "--use-wandb", "--lr", "3e-6")
    assert (done.returncode, done.stderr) == (0, "")
    words = shlex.split(done.stdout)
    assert words[0] == "python3" and words[1] == str(Path(os.environ.get("HOME", "/")) / "slime/train.py")
    assert words[-3:] == ["--use-wandb", "--lr", "3e-6"]
    assert resolve_name(value_of(words, "--custom-generate-function-path")) is generate
    assert resolve_name(value_of(words, "--dynamic-sampling-filter-path")) is no_failed_game
    assert Path(value_of(words, "--prompt-data")).name == "v2_n8_2000_train.jsonl"
    assert Path(words[words.index("--eval-prompt-data") + 2]).name == "v2_n8_100_test.jsonl"
    assert value_of(words, "--custom-config-path") == str(CONFIG)
    assert value_of(words, "--metadata-key") == "game_state"
    assert value_of(words, "--actor-num-gpus-per-node") == "4"
    assert value_of(words, "--save") == "/a directory"
    batch = int(value_of(words, "--rollout-batch-size")) * int(value_of(words, "--n-samples-per-prompt"))
    assert batch == int(value_of(words, "--global-batch-size"))


def test_every_path_is_absolute_wherever_it_is_started(tmp_path: Path) -> None:
    """Ray's job does not run where the script does."""
    names = ("SLIME_ROOT", "HF_CHECKPOINT", "REF_LOAD", "SAVE_DIR", "DATA", "EVAL_DATA", "CONFIG")
    environ = {"PATH": os.environ["PATH"], "HOME": "/", "DRY_RUN": "1"} | {name: f"my/{name}" for name in names}
    done = subprocess.run(["bash", SCRIPT], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    words = shlex.split(done.stdout)
    assert words[1] == str(tmp_path / "my/SLIME_ROOT/train.py")
    flags = ("--hf-checkpoint", "--ref-load", "--load", "--save", "--prompt-data", "--custom-config-path")
    assert all(Path(value_of(words, flag)).is_relative_to(tmp_path) for flag in flags)
    assert words[words.index("--eval-prompt-data") + 2] == str(tmp_path / "my/EVAL_DATA")


def test_the_config_is_understood() -> None:
    keys = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    args = Namespace(**keys)
    taskset = MatchingTaskset(**Settings.of(args).matching_args)
    assert (taskset.partner, taskset.role) == ("scripted", 1)
    assert resolve_name(args.rollout_interaction_env_path).build_env is build_env
    assert set(keys) == {
        "matching_args", "matching_turn_tokens", "matching_timeout_s", "rollout_interaction_env_path"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ((), "there is no `ray`: start this in SLIME's container"),
        (("ray", "slime"), "MODEL=qwen3-4B-Instruct-2507: there is no"),
        (("ray", "slime", "model", "megatron", "hf"), "tools/convert_hf_to_torch_dist.py"),
        (("ray", "slime", "model", "megatron", "hf", "ref"), "slimrl and its game cannot be loaded by python3"),
    ],
)
def test_what_is_missing_is_named(there: tuple[str, ...], message: str, tmp_path: Path) -> None:
    made = {
        "slime": tmp_path / "slime/train.py",
        "model": tmp_path / "slime/scripts/models/qwen3-4B-Instruct-2507.sh",
        "ray": tmp_path / "bin/ray",
        "python3": tmp_path / "bin/python3",
    }
    (tmp_path / "slime/scripts/models").mkdir(parents=True)
    (tmp_path / "slime/scripts/models/other.sh").write_text("")
    (tmp_path / "bin").mkdir()
    for name in (*there, "python3"):
        if name in made:
            made[name].write_text("#!/bin/sh\nexit 1\n")  # a python3 that cannot import slimrl
            made[name].chmod(made[name].stat().st_mode | stat.S_IXUSR)
        else:
            (tmp_path / name).mkdir()
    environ = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "SLIME_ROOT": str(tmp_path / "slime"),
        "MEGATRON_ROOT": str(tmp_path / "megatron"),
        "HF_CHECKPOINT": str(tmp_path / "hf"),
        "REF_LOAD": str(tmp_path / "ref"),
    }
    done = run(environ)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
