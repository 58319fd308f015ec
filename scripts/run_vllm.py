"""Starts vLLM's server as the judge: `--help` says how. A thin door to `slimrl/servers/vllm.py`."""

import sys

from dotenv import load_dotenv

from slimrl.errors import UserError
from slimrl.servers.vllm import main

if __name__ == "__main__":
    load_dotenv()
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing was left running")
