"""Starts vLLM's server as the judge: `--help` says how. A thin entry to `slimrl_search/services/vllm.py`."""

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from slimrl_search.services.script import run_script
from slimrl_search.services.vllm import main

if __name__ == "__main__":
    load_dotenv()
    run_script(main)
