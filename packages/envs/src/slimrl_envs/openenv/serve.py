"""Serves one environment over the loopback address, for the process that started it, and ends when that one ends.

The program runs by `python -c`, also by a Python that has OpenEnv and not slimrl: it imports nothing of slimrl. Its
arguments are `module:name` and the number of sessions. Its first and only line of output is JSON: the port and the
number of sessions that the environment allows (0 if unknown), or an error.
"""

import importlib
import inspect
import json
import os
import signal
import socket
import sys
import threading
import typing
from typing import Any


def make_app(place: str, num_sessions: int) -> tuple[Any, int]:
    """Return the app that serves the object at `module:name`, and the number of sessions that it allows."""
    module, _, name = place.partition(":")
    found = getattr(importlib.import_module(module), name)
    made = found if inspect.isclass(found) or hasattr(found, "router") else found()
    if hasattr(made, "router"):
        return made, 0
    kind: Any = made if inspect.isclass(made) else type(made)
    server = importlib.import_module("openenv.core.env_server")
    if not issubclass(kind, server.Environment):
        raise TypeError(f"{place} gives {kind.__name__}, which is neither an Environment of OpenEnv nor an app")
    if made is not kind:  # the factory makes others for the sessions
        made.close()
    allowed = num_sessions if kind.SUPPORTS_CONCURRENT_SESSIONS else 1
    return server.create_app(found, *models_of(kind, server), max_concurrent_envs=allowed), allowed


def models_of(kind: Any, server: Any) -> tuple[Any, Any]:
    """Return the classes of an environment's actions and observations, by the annotations of its `step`."""
    if issubclass(kind, server.MCPEnvironment):
        return server.CallToolAction, server.CallToolObservation
    for step in (kind.step, kind.step_async):
        hints = typing.get_type_hints(step)
        result = hints.pop("return", None)
        action = hints.get(next(iter(list(inspect.signature(step).parameters)[1:]), ""), None)
        if all(inspect.isclass(model) for model in (action, result)):
            return action, result
    raise TypeError(
        f"the step of {kind.__name__} must be annotated with the classes of its action and its observation; or name an "
        "app that `create_app` has made"
    )


def end_with_parent() -> None:
    """Wait until the parent exits or closes the pipe, and kill this process and its children."""
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> int:
    """Serve until the parent exits."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of the environment must not fill a pipe that nobody reads
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        app, allowed = make_app(sys.argv[1], int(sys.argv[2]))
        uvicorn = importlib.import_module("uvicorn")
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    except BaseException as error:  # it is the environment's code
        missing = error.name if isinstance(error, ModuleNotFoundError) else ""
        print(json.dumps({"error": f"{type(error).__name__}: {error}", "missing": missing}), file=answers, flush=True)
        return 1
    print(json.dumps({"port": listener.getsockname()[1], "sessions": allowed}), file=answers, flush=True)
    answers.close()
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
