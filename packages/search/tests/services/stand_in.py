"""A program that stands in for llama-server and vllm: loads for a moment, then answers yes.

Run as a program with their flags; `--alias` or `--served-model-name` `broken` ends it at once, `slow` never gets ready.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOADING_S = 0.4


def flag(*names: str) -> str:
    return next(sys.argv[sys.argv.index(name) + 1] for name in names if name in sys.argv)


MODEL, BEGAN = flag("--alias", "--served-model-name"), time.monotonic()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ready = MODEL != "slow" and time.monotonic() > BEGAN + LOADING_S
        self.reply(200 if ready else 503, {"status": "ok" if ready else "loading"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply(200, {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]})

    def reply(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    print("arguments:", *sys.argv[1:], flush=True)
    if MODEL == "broken":
        sys.exit("these weights cannot be read")
    ThreadingHTTPServer(("127.0.0.1", int(flag("--port"))), Handler).serve_forever()
