"""Runs llama.cpp's server from the Python package `xllamacpp`, with the flags of `llama-server`.

This program runs in the virtual environment of `xllamacpp`, in which slimrl is not installed. slimrl never imports this
module.
"""

import argparse
import threading

import xllamacpp


def main() -> None:
    """Serve until the process is killed."""
    parser = argparse.ArgumentParser()
    for name in ("--model", "--alias", "--host"):
        parser.add_argument(name, required=True)
    for name in ("--port", "--parallel", "--ctx-size"):
        parser.add_argument(name, required=True, type=int)
    arguments = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {arguments.alias}
    params.hostnames = [arguments.host]
    params.port = arguments.port
    params.n_parallel = arguments.parallel
    params.n_ctx = arguments.ctx_size
    server = xllamacpp.Server(params)  # it listens as long as this object exists
    print(f"listening at {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
