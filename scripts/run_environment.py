"""Starts the sandbox's server with the tools of wiki-search; `--help` says how."""

import os

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from slimrl_search.retrieval.prepare import directory_of
from slimrl_search.scripts.wiki_search import new_source
from slimrl_search.services.container import main
from slimrl_search.services.server import run_script

if __name__ == "__main__":
    load_dotenv()
    directory = directory_of(new_source(os.environ), os.environ.get("DATA_DIR", ""))
    run_script(lambda argv: main(argv, directory))
