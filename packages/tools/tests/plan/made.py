"""Settings, machines and plans for the planner's tests."""

import json
from pathlib import Path

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl_tools.plan.devices import Device, Machine, find_machine
from slimrl_tools.plan.plan import Plan, Planner, make_planner

BASE = 0.8e9
MODEL = "smollm2-135m"
LARGE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


def make_large(directory: Path) -> Path:
    """A model of 8 billion weights, of which there is nothing but the config."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(LARGE))
    return directory


def settings(model: Path | str, *flags: str) -> RLConfig:
    fixed = ["--model.name", str(model), "--model.dtype", "bfloat16", "--orchestrator.env", '[{id="reverse-text"}]']
    return load(RLConfig, [*fixed, *flags], {}).config


def sft_settings(model: Path | str, *flags: str) -> SFTConfig:
    fixed = ["--model.name", str(model), "--data.type", "expert", "--data.env.id", "reverse-text"]
    return load(SFTConfig, [*fixed, *flags], {}).config


def planner(config: RLConfig | SFTConfig) -> Planner:
    return make_planner(config, BASE)


def cpu(gigabytes: float) -> Machine:
    return Machine("a CPU", Device("CPU", "cpu", gigabytes * 1e9, 2e10, 1e12, 2e11), 0, gigabytes * 1e9)


def on(config: RLConfig | SFTConfig, machine: str | Machine) -> Plan:
    return planner(config).on(find_machine(machine) if isinstance(machine, str) else machine)


def part(plan: Plan, name: str) -> float:
    """The bytes of the parts with this name, in all processes."""
    found = (one for place in plan.places for process in place.processes for one in process.parts)
    return sum(one.bytes for one in found if name in one.name)
