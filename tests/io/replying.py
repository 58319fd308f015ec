"""A server over loopback that replies as told: well, badly, late, or not at all."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What it says: a body as bytes, anything that becomes JSON, or an iterator of bytes, which it sends one by one."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its path, its body, and its headers."""

    path: str
    body: Any
    headers: Mapping[str, str]


def completion(text: Any, **choice: Any) -> Answer:
    whole = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **choice}
    return Answer(200, {"id": "1", "object": "chat.completion", "created": 0, "model": "judge", "choices": [whole]})


@contextmanager
def server(answer: Callable[[Asked], Answer]) -> Iterator[tuple[str, list[Asked]]]:
    """Its address, and the requests so far. An exception in `answer` closes the connection without a reply."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"] or 0))
            body = json.loads(content) if content else None
            asked.append(Asked(self.path, body, dict(self.headers)))
            try:
                reply = answer(asked[-1])
            except Exception:
                self.close_connection = True
                return
            if isinstance(reply.body, Iterator):
                parts, headers = reply.body, {"Connection": "close"}
            else:
                data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                parts, headers = iter([data]), {"Content-Length": str(len(data))}
            try:
                self.send_response(reply.status)
                for name, value in {**headers, **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                for part in parts:
                    self.wfile.write(part)
            except ConnectionError:
                self.close_connection = True  # whoever asked has gone

        do_GET = do_POST

        def log_message(self, *arguments: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/v1", asked
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
