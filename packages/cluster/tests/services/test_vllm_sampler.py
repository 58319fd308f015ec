"""How vLLM is started as a sampler: its flags, its memory, and the plug-in that needs no installation."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slimrl.config.rollout import InferenceConfig
from slimrl.errors import UserError
from slimrl_cluster.services.vllm_sampler import vllm_command, vllm_environment

SIZES = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}


def programs(directory: Path, *names: str) -> Path:
    """Where programs of these names are, which do nothing."""
    directory.mkdir()
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return directory


def model_dir(directory: Path) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(SIZES))
    return directory


def test_the_command_has_every_flag_that_a_run_needs(tmp_path: Path) -> None:
    program = programs(tmp_path / "bin", "vllm", "python3") / "vllm"
    config = InferenceConfig(backend="vllm", vllm_program=str(program), max_slots=8)
    command = vllm_command(config, model_dir(tmp_path / "model"), 300, ("10.0.0.7", 8123), "bfloat16")
    assert command[0] == str(tmp_path / "bin" / "python3")
    flags = dict(zip(command[4::2], command[5::2], strict=True))
    assert command[3] == "--enable-scale-out"
    assert flags["--host"] == "10.0.0.7" and flags["--port"] == "8123"
    assert flags["--logprobs-mode"] == "processed_logprobs"
    assert json.loads(flags["--weight-transfer-config"]) == {"backend": "slimrl"}
    # 8 sequences of 3 blocks, and one block: 128 tokens with keys and values of 30 layers, 3 heads, 64 numbers.
    assert int(flags["--kv-cache-memory-bytes"]) == (8 * 3 + 1) * 128 * 2 * 30 * 3 * 64 * 2


def test_a_missing_vllm_is_named_with_the_setting(tmp_path: Path) -> None:
    model, address = model_dir(tmp_path / "model"), ("127.0.0.1", 1)
    with pytest.raises(UserError, match=r"set --inference\.vllm_program"):
        vllm_command(
            InferenceConfig(backend="vllm", vllm_program=str(tmp_path / "vllm")), model, 300, address, "bfloat16"
        )
    program = programs(tmp_path / "bin", "vllm") / "vllm"
    with pytest.raises(UserError, match="no python3 beside"):
        vllm_command(InferenceConfig(backend="vllm", vllm_program=str(program)), model, 300, address, "bfloat16")


def test_another_python_finds_the_plugin_on_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    vllm_environment()
    environment = vllm_environment()  # a second time it is there
    first, second = environment["PYTHONPATH"].split(":")
    assert second == "/somewhere"
    # Without packages of this environment: as in vLLM's, nothing of slimrl's is installed.
    code = (
        "from importlib.metadata import entry_points; import sys\n"
        "[plugin] = entry_points(group='vllm.general_plugins')\n"
        "assert plugin.load().__name__ == 'register'\n"
        "assert not {'torch', 'pydantic', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": first}, check=True, timeout=30)
