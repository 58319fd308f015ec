"""Small finished runs on disk, with weights of random bytes: sharing looks at files alone."""

import json
import os
from pathlib import Path

from slimrl.config.reading.load import load
from slimrl.config.reading.saved import write_config
from slimrl.config.run import RLConfig
from slimrl.io.checksums import new_directory, seal
from slimrl.monitor.plots import plot_run
from slimrl.monitor.sinks import JsonlSink, Monitor

ROOT = Path(__file__).parents[4]
RECIPE = ROOT / "examples" / "reverse_text" / "rl.toml"
STAGES = {"base": ("base model", 0.0), "start": ("after warm-up", 0.5), "final": ("after RL", 0.875)}
KEY = "hf_" + "S3cret" * 6


def finished_run(directory: Path, *flags: str, adapter: bool = False) -> Path:
    """A run of two steps of the recipe, with its evaluations."""
    lora = ["--model.lora.rank", "4"] if adapter else []
    argv = ["@", str(RECIPE), "--max_steps", "2", "--output_dir", str(directory), *lora, *flags]
    write_config(load(RLConfig, argv, {}), directory)
    with Monitor([JsonlSink(directory / "metrics.jsonl")]) as monitor:
        for step in range(2):
            monitor.log(step, {"reward/mean": 0.5 + step / 4})
    (directory / "held_out").mkdir()
    for slug, (name, mean) in STAGES.items():
        estimate = {"mean": mean, "low": mean - 0.03125, "high": mean + 0.03125, "num": 200}
        content = {"name": name, "held_out": {"greedy": estimate}, "metrics": {"held_out/exact_greedy": mean / 2}}
        (directory / "held_out" / f"{slug}.json").write_text(json.dumps(content))
    summary = {"duration_s": 90.0, "tokens_sampled": 1200, "tokens_trained": 1000}
    (directory / "summary.json").write_text(json.dumps(summary))
    plot_run(directory)
    save_weights(directory, adapter)
    return directory


def save_weights(directory: Path, adapter: bool) -> None:
    weights = directory / "weights" / "step_2"
    with new_directory(weights) as temporary:
        for name, size in (("model-00001-of-00002.safetensors", 30_000), ("model-00002-of-00002.safetensors", 20_000)):
            (temporary / name).write_bytes(os.urandom(size))
        (temporary / "config.json").write_text('{"model_type": "llama"}')
        (temporary / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
        if adapter:
            (temporary / "adapter").mkdir()
            (temporary / "adapter" / "adapter_model.safetensors").write_bytes(os.urandom(15_000))
            base = {"peft_type": "LORA", "base_model_name_or_path": str(directory / "cache" / "smollm2-135m")}
            (temporary / "adapter" / "adapter_config.json").write_text(json.dumps(base))
            (temporary / "adapter" / "README.md").write_text(f"It loads `{base['base_model_name_or_path']}`.\n")
            seal(temporary / "adapter")
    (weights.parent / "latest").symlink_to("step_2")
