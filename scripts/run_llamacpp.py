"""Starts llama.cpp's server as the judge: `--help` says how. A thin entry to `slimrl/services/llama_cpp.py`."""

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from slimrl.services.llama_cpp import main
from slimrl.services.script import run_script

if __name__ == "__main__":
    load_dotenv()
    run_script(main)
