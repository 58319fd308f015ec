"""A stand-in of the Hub's API over loopback, as far as uploads need it: what it gets is kept in memory.

Written against huggingface_hub's own client, which is what talks to it. It knows no Xet: that client is a program of
its own.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

TOKEN, OWNER = "hf_" + "t0ken" * 4, "me"
LFS_BYTES = 10_000  # from this size on a file goes through LFS


class Hub:
    """The state of the stand-in. `refuse_uploads_after` of the large files is as if the network broke then."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, Any]] = {}
        self.blobs: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.requests: list[str] = []
        self.refuse_uploads_after = 1_000_000
        self.endpoint = ""

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        return self.repos[repo]["branches"][revision]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def do_PUT(self) -> None:
        oid, body = self.path.rpartition("/")[2], self._body()
        if len(self.hub.puts) >= self.hub.refuse_uploads_after:
            self._send(400, {"error": "the line broke"})
            return
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.blobs[oid] = body
        self.hub.puts.append(oid)
        self._send(200, {})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _send(self, status: int, content: Any, **headers: str) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, body: bytes) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        hub.requests.append(f"{self.command} {path}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {"error": "Invalid username or password."})
        elif path == "/api/whoami-v2":
            self._send(200, {"name": OWNER, "type": "user"})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            text = json.loads(body)["content"]
            yaml.safe_load(text.split("---")[1]) if text.startswith("---") else None
            self._send(200, {"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(branch|preupload|commit)/([^/]+))?", path):
            self._repo(*found.groups(), body)
        elif found := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            self._batch(json.loads(body))
        else:
            self._send(404, {"error": f"there is no {path}"})

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or OWNER}/{asked['name']}"
        if not name.startswith(f"{OWNER}/"):
            self._send(403, {"error": "You don't have the rights to create a model under this namespace"})
        elif name in self.hub.repos:
            self._send(409, {"error": "You already created this model repo", "url": f"{self.hub.endpoint}/{name}"})
        else:
            private = asked.get("visibility") == "private"
            self.hub.repos[name] = {"private": private, "branches": {"main": {}}}
            self._send(200, {"url": f"{self.hub.endpoint}/{name}", "name": name, "id": name})

    def _repo(self, name: str, what: str | None, revision: str | None, body: bytes) -> None:
        repo = self.hub.repos.get(name)
        if repo is None:
            self._send(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        elif what is None:
            self._send(200, {"id": name, "private": repo["private"], "tags": [], "siblings": [], "sha": "0" * 40})
        elif what == "branch":
            status = 409 if revision in repo["branches"] else 200
            repo["branches"].setdefault(revision, dict(repo["branches"]["main"]))
            self._send(status, {})
        elif what == "preupload":
            files = json.loads(body)["files"]
            modes = ["lfs" if file["size"] >= LFS_BYTES else "regular" for file in files]
            answers = [
                {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}
                for file, mode in zip(files, modes, strict=True)
            ]
            self._send(200, {"files": answers})
        else:
            self._commit(name, repo["branches"][revision], body)

    def _batch(self, asked: dict[str, Any]) -> None:
        objects = []
        for one in asked["objects"]:
            upload = {"upload": {"href": f"{self.hub.endpoint}/store/{one['oid']}"}}
            objects.append({**one, **({} if one["oid"] in self.hub.blobs else {"actions": upload})})
        self._send(200, {"transfer": "basic", "objects": objects})

    def _commit(self, name: str, files: dict[str, bytes], body: bytes) -> None:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
        url = f"{self.hub.endpoint}/{name}/commit/{'1' * 40}"
        self._send(200, {"success": True, "commitUrl": url, "commitOid": "1" * 40})


@contextmanager
def fake_hub() -> Iterator[Hub]:
    """The stand-in at a free port, until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
