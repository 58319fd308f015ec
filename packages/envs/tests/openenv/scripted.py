"""A server of OpenEnv's protocol that answers as a test wants, well or badly."""

import json
import threading
from contextlib import contextmanager

from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.sync.server import serve

SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}, "metadata": {"type": "object"}}}
READY = json.dumps({"type": "observation", "data": {"observation": {"text": "ready"}, "reward": None, "done": False}})


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
