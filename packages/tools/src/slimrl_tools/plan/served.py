"""Estimates the memory of language models that other programs serve on this machine: judges, partners, HTTP teachers.

The size of a model is estimated from its name. A server on another machine does not count.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from slimrl.config.run import RLConfig, SFTConfig
from slimrl.config.teacher import ServerTeacherConfig
from slimrl.io.urls import is_http_url, is_this_machine
from slimrl_tools.plan.memory import Part, ProcessMemory

RUNTIME = 500_000_000  # a cache for some thousand tokens, buffers and the program: docs/plan.md
# Bits per weight for each mark in a model's name: llama.cpp's K-quants with their scales, and file formats for GPUs.
BITS = {"fp16": 16.0, "f16": 16.0, "mxfp4": 4.25, "gpt-oss": 4.25,
        "q8": 8.5, "q6": 6.6, "q5": 5.7, "q4": 4.85, "q3": 3.9, "q2": 3.2, "fp8": 8.0, "int8": 8.0, "w8a8": 8.0,
        "awq": 4.5, "gptq": 4.5, "int4": 4.5, "4bit": 4.5, "8bit": 8.5}  # fmt: skip
NAMED = re.compile(r"(?<![a-z0-9.])(?:(\d{1,2})x)?(\d{1,4}(?:\.\d{1,2})?)([bm])(?![a-z])", re.IGNORECASE)


def served_processes(config: RLConfig | SFTConfig, device: str) -> list[ProcessMemory]:
    """Return the memory of the models that a run uses through servers on this machine, once per model. Each model uses
    memory on `device`. A model that frees its GPU while the policy trains (`sleeps`) also uses main memory."""
    found = dict[tuple[str, str], list[ProcessMemory]]()
    for role, settings in _servers(config) if isinstance(config, RLConfig) else ():
        base_url, name = settings.get("base_url"), settings.get("model")
        if not (isinstance(base_url, str) and isinstance(name, str) and is_http_url(base_url)):
            continue  # the environment reports this error
        if is_this_machine(urlsplit(base_url).hostname or ""):
            sleeps = settings.get("sleeps") is True and device != "cpu"
            title = f"{role} {name} at {base_url}"
            found.setdefault((base_url, name), [*_processes(title, role, size_by_name(name), device, sleeps)])
    return [one for processes in found.values() for one in processes]


def _processes(title: str, role: str, size: float, device: str, sleeps: bool) -> Iterator[ProcessMemory]:
    if not size:
        yield ProcessMemory(f"{title}: its size is not known, and not counted", device, 0.0, ())
        return
    weights, rest = Part(f"{role}: weights, by its name", size), Part(f"{role}: cache, buffers", RUNTIME)
    yield ProcessMemory(title, device, 0.0, (weights, rest), sleeps=sleeps)
    if sleeps:
        yield ProcessMemory(f"{title}, asleep", "cpu", 0.0, (weights,))


def size_by_name(name: str) -> float:
    """Estimate the bytes of a model's weights from its name; 0 if the name has no size. In Ollama's style of names,
    weights have 4 bits unless the name has another number of bits.

    >>> [round(size_by_name(name) / 1e9, 1) for name in ("qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct", "gpt-oss")]
    [4.2, 14.0, 0.0]
    """
    with suppress(OSError, ValueError):  # such as a name that is too long for a file
        if name.endswith(".gguf") and Path(name).is_file():
            return float(Path(name).stat().st_size)
    if not (number := NAMED.search(name)):
        return 0.0
    lower = name.lower()
    is_gguf = "gguf" in lower or (":" in lower and "/" not in lower)
    bits = next((bits for mark, bits in BITS.items() if mark in lower), BITS["q4"] if is_gguf else 16.0)
    return int(number[1] or 1) * float(number[2]) * (1e9 if number[3] in "bB" else 1e6) * bits / 8


def _servers(config: RLConfig) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the role and the settings of each server that a run's settings name."""
    for env in config.orchestrator.env:
        tables = {key: value for key, value in env.args.items() if isinstance(value, Mapping)}
        yield from (("partner" if key == "llm" else key, value) for key, value in tables.items())
    if isinstance(config.teacher, ServerTeacherConfig):
        yield "teacher", {"base_url": config.teacher.base_url, "model": config.teacher.model}
