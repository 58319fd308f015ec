"""What the CPU can do, as far as kernels depend on it."""

import platform
from pathlib import Path

from slimrl.monitor.findings import Finding, Level

CPUINFO = Path("/proc/cpuinfo")
# Flags of Linux, from the best on, and what they are called.
FEATURES = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX512-BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "bf16": "BF16 of ARM",
    "asimd": "NEON",
}
TILES = ("amx_bf16", "avx512_bf16")


def probe() -> list[Finding]:
    """A finding on the CPU."""
    if not CPUINFO.is_file():
        return [Finding("CPU", Level.OK, f"{platform.processor() or platform.machine()}; its features are not known")]
    return [cpu_finding(CPUINFO.read_text(encoding="utf-8", errors="replace"))]


def cpu_finding(text: str) -> Finding:
    """The CPU's features that kernels use, from the text of /proc/cpuinfo."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    values = {name.strip(): value.strip() for name, value in fields.items()}
    flags = (values.get("flags") or values.get("Features") or "").split()
    known = [name for flag, name in FEATURES.items() if flag in flags]
    model = values.get("model name", platform.machine())
    use = "sampling and training multiply bfloat16 in tiles" if {*flags} & {*TILES} else "bfloat16 is no faster here"
    return Finding("CPU", Level.OK, f"{model}: {', '.join(known) or 'no vector units that are used'}; {use}")
