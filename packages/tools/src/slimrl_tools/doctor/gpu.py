"""GPUs: what the driver shows, what PyTorch can use of it, NCCL, and vLLM as a sampler."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import torch

from slimrl.monitor.findings import Finding, Level

GB = 1e9
SMI_TIMEOUT_S = 10.0
QUERY = "name,driver_version,memory.total,compute_cap"
MIN_CAPABILITY = (7, 0)  # PyTorch's builds for CUDA 12.8 and later begin with Volta or Turing
BUILD = "Install a PyTorch for CUDA: `uv pip install --torch-backend auto torch`, see docs/install.md"


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as PyTorch sees it; memory in bytes."""

    name: str
    free: float
    total: float
    capability: tuple[int, int]
    has_bf16: bool


def probe() -> list[Finding]:
    """Findings on GPUs and what goes with them."""
    shown = read_smi()
    if not torch.cuda.is_available():
        return [no_gpu_finding(shown, torch.version.cuda or "")]
    cards = [_card(number) for number in range(torch.cuda.device_count())]
    driver = shown[0].split(", ")[1] if shown else "unknown"
    found = [card_finding(number, card, driver) for number, card in enumerate(cards)]
    if len(cards) > 1:
        found.append(nccl_finding(torch.distributed.is_nccl_available()))
    return [*found, vllm_finding(shutil.which("vllm") or "", _version("vllm"))]


def read_smi() -> list[str]:
    """The lines of nvidia-smi, one a GPU; none without a driver."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    query = [smi, f"--query-gpu={QUERY}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def no_gpu_finding(shown: Sequence[str], built_for: str) -> Finding:
    """Why PyTorch uses no GPU, where the driver may show some; `built_for` is PyTorch's version of CUDA."""
    if not shown:
        return Finding("GPU", Level.OK, "none: everything is computed on the CPU")
    cards = "; ".join(shown)
    if not built_for:
        return Finding("GPU", Level.PROBLEM, f"the driver shows {cards}, and this PyTorch is built for CPUs", BUILD)
    text = f"the driver shows {cards}, and PyTorch (CUDA {built_for}) cannot use them"
    remedy = "Look at CUDA_VISIBLE_DEVICES; else the driver is older than this CUDA: update it, or take an older build."
    return Finding("GPU", Level.PROBLEM, text, remedy)


def card_finding(number: int, card: Card, driver: str) -> Finding:
    """What a GPU has, and what will be used of it."""
    capability = ".".join(map(str, card.capability))
    text = f"{card.name}, {card.free / GB:.1f} of {card.total / GB:.1f} GB free, compute capability {capability}"
    text += f", driver {driver}"
    subject = f"GPU {number}"
    if card.capability < MIN_CAPABILITY:
        return Finding(subject, Level.PROBLEM, f"{text}: too old for PyTorch's builds", "--model.device cpu")
    if not card.has_bf16:
        return Finding(subject, Level.NOTE, f"{text}; no bfloat16: float32 is used", "A GPU since Ampere has it.")
    return Finding(subject, Level.OK, f"{text}; bfloat16 is used")


def nccl_finding(is_available: bool) -> Finding:
    """Whether several GPUs can talk to each other."""
    if not is_available:
        return Finding("NCCL", Level.PROBLEM, "PyTorch has none, so that several GPUs cannot train together", BUILD)
    return Finding(
        "NCCL", Level.OK, f"{'.'.join(map(str, torch.cuda.nccl.version()))}: `torchrun` takes a GPU a process"
    )


def vllm_finding(program: str, installed: str) -> Finding:
    """Whether vLLM can sample."""
    if not program and not installed:
        text = "not found; slimrl's own engine samples"
        return Finding(
            "vLLM", Level.OK, text, "To sample with vLLM, install it in an environment of its own (docs/server.md)."
        )
    return Finding("vLLM", Level.OK, f"{program or installed}: used with `inference.backend = vllm`")


def _card(number: int) -> Card:
    free, total = torch.cuda.mem_get_info(number)
    with torch.cuda.device(number):
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    name, capability = torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)
    return Card(name, free, total, capability, has_bf16)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
