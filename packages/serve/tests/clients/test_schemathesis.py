"""schemathesis, unmodified, as its command line runs it: what `/openapi.json` says is what the server does."""

import subprocess
import sys
from pathlib import Path

import pytest

from packages.serve.tests.conftest import idle, serving

pytestmark = pytest.mark.nightly  # a server of its own and hundreds of requests


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_breaks_the_server_or_its_promises(tiny_dir: Path, tmp_path: Path, mode: str) -> None:
    # A short context bounds the lengths that examples ask for.
    with serving(tiny_dir, max_slots=8, context_len=48, max_queue=128) as server:
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.address}/openapi.json"),
            *("--mode", mode, "--max-examples", "5", "--seed", "1", "--workers", "1"),
            # No schema can say which names, paths, lengths and pairs of fields a server accepts: it may answer 400.
            *("--exclude-checks", "positive_data_acceptance"),
            *("--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--no-color"),
        ]
        result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=170)
        assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
        assert idle(server)
