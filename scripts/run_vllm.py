"""Starts vLLM's server as the judge: `--help` says how. A thin door to `slimrl/services/vllm.py`."""

from dotenv import load_dotenv

from slimrl.services.script import door
from slimrl.services.vllm import main

if __name__ == "__main__":
    load_dotenv()
    door(main)
