"""This machine's limits, the table of devices, and the shapes of models."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from packages.tools.tests.plan.made import MODEL, planner, settings, sft_settings
from slimrl.errors import UserError
from slimrl.models.names import find_packaged_file, read_packaged_config
from slimrl.models.resolve import resolve
from slimrl_tools.plan.devices import DEVICES, find_machine
from slimrl_tools.plan.measure import this_machine
from slimrl_tools.plan.report import full_report
from slimrl_tools.plan.shape import read_shape

pytestmark = pytest.mark.nightly


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch says that it sees a GPU of 8 GB and one of 80 GB."""
    found = [SimpleNamespace(name="Small", total_memory=8e9), SimpleNamespace(name="Large", total_memory=80e9)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(torch.cuda, "get_device_properties", found.__getitem__)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)


@pytest.mark.parametrize(
    ("words", "place", "name"),
    [
        (["--model.device", "cuda:1"], "cuda:1", "GPU 1 (Large)"),
        (["--trainer_gpu_ids", "1", "--deployment.type", "one-process"], "cuda:1", "GPU 1 (Large)"),
        (["--trainer_gpu_ids", "1", "--inference_gpu_ids", "0"], "cuda:1", "GPU 1 (Large)"),
        (["--model.device", "cuda:0"], "cuda:0", "GPU 0 (Small)"),
        (["sft", "--model.device", "cuda:1"], "cuda:1", "(Large)"),
    ],
)
def test_each_gpu_has_its_own_capacity(two_gpus: None, tmp_path: Path, words: list[str], place: str, name: str) -> None:
    config = sft_settings(MODEL, *words[1:]) if words[0] == "sft" else settings(MODEL, *words)
    plan = planner(config).on(this_machine(config.model.device))
    places = {one.device: one for one in plan.places}
    assert places[place].capacity == (80e9 if name.endswith("(Large)") else 8e9)
    assert "cuda:0" not in places or places["cuda:0"].capacity == 8e9
    assert name in "\n".join(full_report(plan))


def test_a_model_on_the_cpu_is_planned_by_the_cpu_where_there_are_gpus(two_gpus: None, tmp_path: Path) -> None:
    words = ["--model.device", "cpu", "--model.dtype", "auto"]
    machine = this_machine("cpu")
    assert (machine.device.kind, machine.num_gpus) == ("cpu", 0)
    assert machine.device.flops not in (5e13, 1e13) and machine.device.bandwidth != 5e11
    plan = planner(settings(MODEL, *words)).on(machine)
    assert [place.device for place in plan.places] == ["cpu"]
    assert plan.demand.compute.bytes == (2 if machine.device.has_bfloat16 else 4)
    # `place` moves a teacher to the CPU, too.
    taught = planner(settings(MODEL, *words, "--teacher.type", "model", "--teacher_gpu_ids", "1")).on(machine)
    assert [place.device for place in taught.places] == ["cpu"]


GEMMA_3N = {
    **{"model_type": "gemma3n_text", "hidden_size": 32, "hidden_size_per_layer_input": 8},
    **{"intermediate_size": [64, 96], "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1},
    **{"head_dim": 16, "vocab_size": 64, "vocab_size_per_layer_input": 64, "num_kv_shared_layers": 0},
    **{"activation_sparsity_pattern": [0.0, 0.0], "layer_types": ["sliding_attention", "full_attention"]},
    **{"altup_num_inputs": 2, "laurel_rank": 4},
}


def test_a_number_for_each_layer_is_read_as_the_largest(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GEMMA_3N))
    assert read_shape(str(tmp_path)).inner == 96


def test_machines_are_named_by_device_and_number() -> None:
    found = [find_machine(name) for name in ("rtx3090x1", "h100x8", "RTX4060TI16G", "l40sx2")]
    named = [(one.device.name, one.num_gpus) for one in found]
    assert named == [("rtx3090", 1), ("h100", 8), ("rtx4060ti16g", 1), ("l40s", 2)]
    assert found[1].device.memory == 80 * 2**30
    for device in DEVICES.values():
        assert 4e9 < device.memory < 3e11 and device.float_flops <= device.flops


@pytest.mark.parametrize(
    ("text", "shown"), [("rtx3900x1", "rtx3090"), ("h1oo", "h100"), ("h100x0", "1 to"), ("", "Known")]
)
def test_an_unknown_device_is_answered_with_the_nearest(text: str, shown: str) -> None:
    with pytest.raises(UserError, match=shown):
        find_machine(text)


def test_the_packaged_models_shape_is_known_before_it_is_fetched() -> None:
    try:
        find_packaged_file(MODEL)
    except UserError as error:
        pytest.skip(str(error))
    config = json.loads((resolve(MODEL) / "config.json").read_text(encoding="utf-8"))
    assert read_packaged_config(MODEL).items() <= config.items()
    assert read_shape(MODEL).weights == 134_515_008
