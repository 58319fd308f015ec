"""Starts llama.cpp's server as the judge: `--help` says how. A thin door to `slimrl/servers/llamacpp.py`."""

from dotenv import load_dotenv

from slimrl.servers.command import door
from slimrl.servers.llamacpp import main

if __name__ == "__main__":
    load_dotenv()
    door(main)
