"""The weights of a judge: here, packaged, or from a Hub that is a stand-in over loopback."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.models.packaged import find_packaged_file
from slimrl_search.services.weights import choose_files, find_gguf, find_model

COMMIT = "0123456789012345678901234567890123456789"
WEIGHTS = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
FILES = ["m-Q8_0.gguf", "m-q4_k_m-00001-of-00002.gguf", "m-q4_k_m-00002-of-00002.gguf", "mmproj-Q4_K_M.gguf", "a.txt"]


@pytest.mark.parametrize(
    ("files", "wanted", "found"),
    [
        (FILES, "Q8_0", ["m-Q8_0.gguf"]),
        (FILES, "q8_0", ["m-Q8_0.gguf"]),
        (FILES, "Q4_K_M", ["m-q4_k_m-00001-of-00002.gguf", "m-q4_k_m-00002-of-00002.gguf"]),
        (FILES, "m-q4_k_m-00001-of-00002.gguf", ["m-q4_k_m-00001-of-00002.gguf", "m-q4_k_m-00002-of-00002.gguf"]),
        (FILES, "m-Q8_0.gguf", ["m-Q8_0.gguf"]),
        ([*FILES, "m-q4_k_m.gguf"], "Q4_K_M", ["m-q4_k_m.gguf"]),
        (["x.Q4_K_M.gguf"], "Q4_K_M", ["x.Q4_K_M.gguf"]),
        (["IQ4_K_M/m-IQ4_K_M.gguf"], "Q4_K_M", []),
        (FILES[:2], "Q4_K_M", []),  # not all parts
        (FILES, "Q2_K", []),
        (FILES, "other.gguf", []),
        ([], "Q4_K_M", []),
    ],
)
def test_a_file_is_chosen_by_its_name_or_quantisation_with_all_its_parts(files: list[str], wanted: str, found: object):
    assert choose_files(files, wanted) == found


def test_a_file_here_and_the_packaged_model_need_no_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("judge.gguf").touch()
    assert find_gguf("judge.gguf") == tmp_path / "judge.gguf"
    assert find_gguf("smollm2-135m") == find_packaged_file("smollm2-135m")
    assert find_model(str(tmp_path)) == str(tmp_path)
    assert (find_model("qwen3-4b"), find_model("owner/model")) == ("Qwen/Qwen3-4B", "owner/model")


@pytest.mark.parametrize("name", ["missing.gguf", "qwen", "a/b/c", "./weights/missing.gguf", "../weights/missing.gguf"])
def test_a_name_that_is_nothing_lists_those_that_are(name: str):
    with pytest.raises(UserError, match=r"JUDGE_MODEL is .*Known: qwen2\.5:3b.*owner/repository:Q8_0"):
        find_gguf(name)


class Hub(ThreadingHTTPServer):
    """One repository with two files, of which the last bytes may be `missing`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.missing = 0
        self.asked: list[str] = []


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer(b"")

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.path} {self.headers.get('Range', '')}".strip())
        if self.path.startswith("/api/models/owner/judge/tree/"):
            lfs = {"size": len(WEIGHTS), "oid": DIGEST, "pointerSize": 1}
            file = {"type": "file", "path": "judge-Q4_K_M.gguf", "size": len(WEIGHTS), "oid": "b", "lfs": lfs}
            self.answer(json.dumps([file, {**file, "path": "judge-Q2_K.gguf"}]).encode())
        elif self.path.startswith("/api/models/owner/judge"):
            files = [{"rfilename": name} for name in ("judge-Q4_K_M.gguf", "judge-Q2_K.gguf")]
            self.answer(json.dumps({"id": "owner/judge", "sha": COMMIT, "siblings": files}).encode())
        elif self.path.startswith("/owner/judge/resolve/"):
            start = int(self.headers.get("Range", "bytes=0-")[6:].partition("-")[0])
            self.answer(WEIGHTS[start : len(WEIGHTS) - self.server.missing], start)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

    def answer(self, data: bytes, start: int = 0) -> None:
        self.send_response(206 if start else 200)
        size = len(WEIGHTS) if self.command == "HEAD" else len(data)
        self.send_header("Content-Length", str(size))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}")
        self.send_header("ETag", f'"{DIGEST}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()


def fetched(hub: Hub, home: Path, name: str = "owner/judge", **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: huggingface_hub reads its settings when it is imported."""
    program = """
import sys
from slimrl.errors import UserError
from slimrl_search.services.weights import find_gguf
try:
    print(find_gguf(sys.argv[1]))
except UserError as error:
    sys.exit(str(error))
"""
    settings = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(home), "SLIMRL_CACHE": str(home)}
    settings |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", program, name]
    environment = {**os.environ, **settings, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)


@pytest.mark.slow
def test_weights_are_fetched_once_and_found_without_a_network(hub, tmp_path):
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HTTP_PROXY": "", "http_proxy": ""}
    bare = fetched(hub, tmp_path, **nowhere)
    assert bare.returncode == 1 and bare.stderr.count("\n") == 1, bare.stderr
    assert "could not be fetched" in bare.stderr and "Q4_K_M is not complete in the cache" in bare.stderr
    done = fetched(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == WEIGHTS and "weights: " in done.stderr
    assert fetched(hub, tmp_path).stdout == done.stdout
    assert sum("/resolve/" in path for path in hub.asked) == 1
    for away in (nowhere, {"HF_HUB_OFFLINE": "1"}):
        again = fetched(hub, tmp_path, **away)
        assert again.stdout == done.stdout and "Hub cannot be reached" in again.stderr, again.stderr
    other = fetched(hub, tmp_path, "owner/judge:Q8_0", HF_HUB_OFFLINE="1")
    assert other.returncode == 1 and "Q8_0 is not complete in the cache" in other.stderr


@pytest.mark.slow
def test_a_choice_that_is_not_there_is_named_and_half_a_file_is_refused(hub, tmp_path):
    other = fetched(hub, tmp_path, "owner/judge:Q8_0")
    assert "owner/judge has no .gguf file Q8_0. It has: judge-Q2_K.gguf, judge-Q4_K_M.gguf" in other.stderr
    missing = fetched(hub, tmp_path, "owner/other")
    assert "there is no model owner/other on the Hugging Face Hub" in missing.stderr
    hub.missing = 100
    done = fetched(hub, tmp_path)
    assert done.returncode == 1 and "could not be fetched" in done.stderr and "Traceback" not in done.stderr
