"""Starts the sandbox's server with the tools of wiki-search (`slimrl/servers/sandbox.py`): `--help` says how."""

import os

from dotenv import load_dotenv

from slimrl.environments.wiki_search import directory_of
from slimrl.launch.wiki import Variables
from slimrl.retrieval.prepare import Source
from slimrl.servers.command import door
from slimrl.servers.sandbox import main

if __name__ == "__main__":
    load_dotenv()
    variables = Variables.of(os.environ)
    source = Source("generated", variables.num_pages)
    door(lambda argv: main(argv, directory_of(source, variables.data_dir)))
