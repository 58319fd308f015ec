"""Starts the sandbox's server with the tools of wiki-search (`services/sandbox/container.py`): `--help` says how."""

import os

from dotenv import load_dotenv

from slimrl.retrieval.prepare import GENERATED, Source, directory_of
from slimrl.scripts.wiki_search import Variables
from slimrl.services.sandbox.container import main
from slimrl.services.script import run_script

if __name__ == "__main__":
    load_dotenv()
    variables = Variables.of(os.environ)
    source = Source(GENERATED, variables.num_pages)
    run_script(lambda argv: main(argv, directory_of(source, variables.data_dir)))
