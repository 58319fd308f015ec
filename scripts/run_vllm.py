"""Starts vLLM's server as the judge: `--help` says how. A thin entry to `slimrl_search/services/judges.py`."""

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from slimrl_search.services.judges import serve_vllm
from slimrl_search.services.server import run_script

if __name__ == "__main__":
    load_dotenv()
    run_script(serve_vllm)
