"""Serves an app at the loopback address for the parent process, and exits when the parent exits.

The program is run with `python -c`. It imports nothing of slimrl, so it also runs in a Python that has OpenEnv but not
slimrl. Its argument is `module:name`. It prints one line of JSON: the port, or an error.
"""

import importlib
import json
import os
import signal
import socket
import sys
import threading
from typing import Any


def find_app(place: str) -> Any:
    """Return the FastAPI app at `place`, which is `module:name`. Raise TypeError for any other object."""
    module, _, name = place.partition(":")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, importlib.import_module("fastapi").FastAPI):
        raise TypeError(f"{place} is no app; make one of a class: `app = create_app(Class, Action, Observation)`")
    return found


def end_with_parent() -> None:
    """Wait until the parent exits or closes the pipe. Then kill this process and its children."""
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> int:
    """Serve until the parent exits."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of the environment must not fill a pipe that nobody reads
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        app = find_app(sys.argv[1])
        uvicorn = importlib.import_module("uvicorn")
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    except BaseException as error:  # the environment's code may raise any exception
        missing = error.name if isinstance(error, ModuleNotFoundError) else ""
        print(json.dumps({"error": f"{type(error).__name__}: {error}", "missing": missing}), file=answers, flush=True)
        return 1
    print(json.dumps({"port": listener.getsockname()[1]}), file=answers, flush=True)
    answers.close()
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
