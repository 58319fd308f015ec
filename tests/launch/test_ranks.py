"""What processes that torchrun started agree on, and what they refuse."""

import pytest
import torch

from slimrl import cli
from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.launch import ranks as launch_ranks
from slimrl.launch.ranks import agree_on_dtype, join_ranks, own_device
from slimrl.trainer.parallel import ALONE


@pytest.mark.parametrize("environment", [{}, {"WORLD_SIZE": "8"}, {"WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}])
def test_a_process_that_torchrun_did_not_start_with_others_is_alone(environment: dict[str, str]) -> None:
    with join_ranks(environment, ModelConfig()) as (ranks, model):
        assert ranks == ALONE and agree_on_dtype(model, ranks) == ModelConfig()


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.device] = []
    monkeypatch.setattr(launch_ranks, "choose_device", lambda name: torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    assert own_device(ModelConfig(device="cuda"), 3, 4) == torch.device("cuda:3") == used[0]
    assert own_device(ModelConfig(), 0, 4) == torch.device("cuda:0")


@pytest.mark.parametrize(("device", "found"), [("cuda", "cuda is 1"), ("cuda:1", "cuda:1 is 1")])
def test_processes_do_not_share_a_gpu(device: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_ranks, "choose_device", lambda name: torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match=rf"2 processes.*model\.device = {found}\..*--model\.device cpu"):
        own_device(ModelConfig(device=device), 0, 2)


@pytest.mark.parametrize("command", ["rl", "eval"])
def test_other_commands_do_not_run_several_times_over(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    flag = {"rl": "--orchestrator.env", "eval": "--env"}[command]
    assert cli.run([command, flag, "reverse-text"]) == 2
    assert f"torchrun started 2 processes, and `{command}` is one process" in capsys.readouterr().err
