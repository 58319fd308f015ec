"""This machine's limits, the table of devices, and the shape of the packaged model."""

import json
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.errors import UserError
from slimrl.models.names import find_packaged_file, read_packaged_config
from slimrl.models.resolve import resolve
from slimrl_tools.plan.devices import DEVICES, find_machines
from slimrl_tools.plan.measure import this_machine
from slimrl_tools.plan.plan import make_planner
from slimrl_tools.plan.report import full_report
from slimrl_tools.plan.shape import read_shape
from slimrl_tools.system import free_disk, usable_memory
from tests.fake_root import fake_root

pytestmark = pytest.mark.nightly

TOTAL = 8 * 2**30
MODEL = ["--model.name", "smollm2-135m"]
ENV = ["--orchestrator.env.0.id", "reverse-text"]


@pytest.mark.parametrize(("limit", "is_limited"), [(2**30, True), (2**40, False)])
def test_a_limit_of_a_control_group_counts_if_it_is_below_the_memory(
    tmp_path: Path, limit: int, is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=TOTAL))
    memory, name = usable_memory(fake_root(tmp_path, "0::/\n", {"memory.max": str(limit)}))
    assert (memory, bool(name)) == (min(limit, TOTAL), is_limited)


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
        (["--model.device", "cuda:1", *ENV], "cuda:1", "GPU 1 (Large)"),
        (["--trainer_gpu_ids", "1", "--deployment.type", "one-process", *ENV], "cuda:1", "GPU 1 (Large)"),
        (["--trainer_gpu_ids", "1", "--inference_gpu_ids", "0", *ENV], "cuda:1", "GPU 1 (Large)"),
        (["--model.device", "cuda:0", *ENV], "cuda:0", "GPU 0 (Small)"),
        (["--model.device", "cuda:1", "--data.type", "expert", "--data.env.id", "reverse-text"], "cuda:1", "(Large)"),
    ],
)
def test_each_gpu_has_its_own_capacity(two_gpus: None, tmp_path: Path, words: list[str], place: str, name: str) -> None:
    config = load(SFTConfig if "--data.type" in words else RLConfig, [*MODEL, *words], {}).config
    plan = make_planner(config, 0.8e9).on(this_machine(tmp_path, config.model.device))
    places = {one.device: one for one in plan.places}
    assert places[place].capacity == (80e9 if name.endswith("(Large)") else 8e9)
    assert "cuda:0" not in places or places["cuda:0"].capacity == 8e9
    assert name in "\n".join(full_report(plan, []))


def test_a_model_on_the_cpu_is_planned_by_the_cpu_where_there_are_gpus(two_gpus: None, tmp_path: Path) -> None:
    words = [*MODEL, "--model.device", "cpu", *ENV]
    config = load(RLConfig, words, {}).config
    machine = this_machine(tmp_path, config.model.device)
    assert (machine.device.kind, machine.num_gpus) == ("cpu", 0)
    assert machine.device.flops not in (5e13, 1e13) and machine.device.bandwidth != 5e11
    plan = make_planner(config, 0.8e9).on(machine)
    assert [place.device for place in plan.places] == ["cpu"]
    assert plan.demand.compute.bytes == (2 if machine.device.has_bfloat16 else 4)
    # A teacher on a GPU is judged by that one.
    taught = load(RLConfig, [*words, "--teacher.type", "model", "--teacher.device", "cuda:1"], {}).config
    capacities = {place.device: place.capacity for place in make_planner(taught, 0.8e9).on(machine).places}
    assert capacities["cuda:1"] == 80e9


GEMMA_3N = {
    "model_type": "gemma3n_text",
    "hidden_size": 32,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": [64, 96],
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": 64,
    "vocab_size_per_layer_input": 64,
    "num_kv_shared_layers": 0,
    "activation_sparsity_pattern": [0.0, 0.0],
    "layer_types": ["sliding_attention", "full_attention"],
    "altup_num_inputs": 2,
    "laurel_rank": 4,
}


def test_a_number_for_each_layer_is_read_as_the_largest(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GEMMA_3N))
    assert read_shape(str(tmp_path)).inner == 96


def test_the_disk_is_that_of_a_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert free_disk(tmp_path / "not" / "yet") > 0


def test_machines_are_named_by_device_and_number() -> None:
    found = find_machines("rtx3090x1, h100x8,RTX4060TI16G,l40sx2")
    assert [(one.device.name, one.num_gpus) for one in found] == [
        ("rtx3090", 1), ("h100", 8), ("rtx4060ti16g", 1), ("l40s", 2),
    ]  # fmt: skip
    assert found[1].device.memory == 80 * 2**30


@pytest.mark.parametrize(
    ("text", "shown"), [("rtx3900x1", "rtx3090"), ("h1oo", "h100"), ("h100x0", "1 to"), ("", "Known")]
)
def test_an_unknown_device_is_answered_with_the_nearest(text: str, shown: str) -> None:
    with pytest.raises(UserError, match=shown):
        find_machines(text)


def test_numbers_of_the_table_are_plausible() -> None:
    for name, device in DEVICES.items():
        assert name == device.name
        assert 4e9 < device.memory < 3e11
        assert device.float_flops <= device.flops


def test_the_packaged_models_shape_is_known_before_it_is_fetched() -> None:
    try:
        find_packaged_file("smollm2-135m")
    except UserError as error:
        pytest.skip(str(error))
    config = json.loads((resolve("smollm2-135m") / "config.json").read_text(encoding="utf-8"))
    assert read_packaged_config("smollm2-135m").items() <= config.items()
    assert read_shape("smollm2-135m").weights == 134_515_008
