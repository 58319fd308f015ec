"""llama.cpp's server out of the Python package `xllamacpp`, with flags as `llama-server` has them.

Run by the interpreter of the environment that the package is in, never imported: it knows nothing of slimrl.
"""

import argparse
import threading

import xllamacpp


def main() -> None:
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
    server = xllamacpp.Server(params)  # it listens as long as this is held
    print(f"listening at {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
