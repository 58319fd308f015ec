"""Starts the sandbox's server with the tools of wiki-search (`slimrl/servers/sandbox.py`): `--help` says how."""

import os
import sys

from dotenv import load_dotenv

from slimrl.environments.wiki_search import directory_of
from slimrl.errors import UserError
from slimrl.launch.wiki import Variables
from slimrl.retrieval.prepare import Source
from slimrl.servers.sandbox import main

if __name__ == "__main__":
    load_dotenv()
    variables = Variables.of(os.environ)
    try:
        sys.exit(main(sys.argv[1:], directory_of(Source("generated", variables.num_pages), variables.data_dir)))
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing was left running")
