"""What the tests of OpenEnv servers share: its Python, episodes with given replies, and a server that speaks badly."""

import asyncio
import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.sync.server import serve

from packages.envs.tests.episodes import play as play_episode
from slimrl.types import Task
from slimrl_envs.openenv.taskset import OpenEnv

PYTHON = os.environ.get("TEST_OPENENV_PYTHON", "")
needs_openenv = pytest.mark.skipif(
    not PYTHON,
    reason="TEST_OPENENV_PYTHON names no Python with openenv==0.10.0, whose fastmcp contradicts other packages here",
)
SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}, "metadata": {"type": "object"}}}
READY = json.dumps({"type": "observation", "data": {"observation": {"text": "ready"}, "reward": None, "done": False}})


def own(monkeypatch, name, **args):
    """A prepared taskset whose server is started from `served.py` by OpenEnv's Python."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    taskset = OpenEnv(f"served:{name}", python=PYTHON, **args)
    taskset.prepare()
    return taskset


async def play(taskset, replies, number=None):
    """The opening messages, and the turns of an episode with these replies, up to its end; in `Guess` of a number."""
    task = taskset.tasks("train")[0] if number is None else Task(f"number/{number}", {"number": number})
    return await play_episode(taskset.environment(task), replies)


def played(taskset, *replies, number=None):
    return asyncio.run(play(taskset, replies, number))


def played_at(base, *replies, **args):
    """The turns of an episode with a server that runs already."""
    taskset = OpenEnv(base, **args)
    taskset.prepare()
    return played(taskset, *replies)[1]


def observation(**data):
    """The answer with some fields of an observation."""
    return json.dumps({"type": "observation", "data": {"observation": {"text": "seen"}, "reward": 0.5, **data}})


@contextmanager
def serving(answer=READY, schema=SCHEMA, page=None, reset=READY):
    """The address of a server that gives `answer` to every step. An answer that is None is never given; one that is a
    function is called with the connection. `page` answers HTTP, as `(status, headers, body)`, for each path."""
    pages = {
        "/schema": (200, {}, json.dumps({"action": schema})),
        "/metadata": (200, {}, json.dumps({"description": "A fake."})),
        "/health": (200, {}, "{}"),
        **(page or {}),
    }

    def respond(connection, request):
        if request.path not in pages:
            return None
        status, headers, body = pages[request.path]
        return Response(status, "", Headers({**headers, "Content-Length": str(len(body))}), body.encode())

    def handle(connection):
        for text in connection:
            given = {"reset": reset, "step": answer}.get(json.loads(text)["type"])
            if callable(given):
                given(connection)
            elif given is not None:
                connection.send(given)

    with serve(handle, "127.0.0.1", 0, process_request=respond, compression=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
