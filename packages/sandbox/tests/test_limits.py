"""Attempts to use up what the host has: memory, disk, descriptors, and the patience of whoever reads the output."""

import resource
import tempfile
from pathlib import Path

import pytest

from packages.sandbox.tests.conftest import Run, run_all
from slimrl_sandbox.output import MAX_BYTES

pytestmark = pytest.mark.slow

FILL = "import itertools\nfor i in itertools.count(): open(f'{}/{{i}}', 'wb').write(bytes(2**20))"
UNNAMED = (
    "import os\nx = []\nwhile True:\n    x.append(open('x', 'wb'))\n    os.remove('x')\n    x[-1].write(bytes(2**20))"
)
FORKED = """
import mmap, os, time
for _ in range(3): os.fork()
x = mmap.mmap(-1, 60 * 2**20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(0, len(x), 4096): x[i] = 1
time.sleep(30)
"""


@pytest.mark.parametrize(
    ("code", "limits", "error"),
    [
        ("x = bytearray(10**10)", {}, "MemoryError"),
        ("x = []\nwhile True: x.append(bytearray(10**6))", {"memory_mb": 128}, "MemoryError"),
        (FORKED, {"memory_mb": 128}, "memory_mb = 128"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", {}, "printed more than"),
        ("import os\nwhile True: os.write(2, b'x' * 65536)", {}, "printed more than"),
        (
            "import time\nwhile True:\n    print('x', end='', flush=True)\n    time.sleep(0.01)",
            {"timeout_s": 0.5},
            "timeout_s",
        ),
        ("open('x', 'wb').write(bytes(17 * 2**20))", {}, "File too large"),
        *((FILL.format(place), {"scratch_mb": 8}, "No space left") for place in (".", "/tmp", "/scratch")),
        (UNNAMED, {"scratch_mb": 8}, "No space left"),
        ("import itertools, os\nfor i in itertools.count(): os.mkdir(f'd{i}')", {"num_files": 500}, "num_files = 500"),
        ("x = []\nwhile True: x.append(open('/dev/null'))", {}, "Too many open files"),
        ("def f(): f()\nf()", {}, "RecursionError"),
        (
            "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())",
            {},
            "e",
        ),
        ("print(1)\0", {}, "null bytes"),
        ("(" * 10_000 + ")" * 10_000, {}, "e"),
        ("-" * 100_000 + "1", {}, "e"),
        ("print('\\udc80')\nprint('\\ud800')", {}, "UnicodeEncodeError"),
        ("raise ValueError('x' * 10**7)", {}, "ValueError"),
        ("raise type('E' * 10**6, (Exception,), {})('x')", {}, "E"),
        ("class E(Exception):\n    def __str__(self): raise E\nraise E", {}, "E"),
        ("class E(BaseException):\n    def __str__(self): return 3\nraise E", {}, "E"),
        ("raise ValueError('\\ud800')", {}, "ValueError"),
        ("raise KeyboardInterrupt", {}, "KeyboardInterrupt"),
        ("raise ExceptionGroup('many', [ValueError(i) for i in range(10**5)])", {}, "ExceptionGroup"),
        ("exec('x' * 10**6)", {}, "NameError"),
    ],
)
def test_what_takes_too_much_or_fails_ends_with_its_reason(
    code: str, limits: dict[str, object], error: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the host keeps what belongs to a sandbox
    execution = run(code, session_id="s", **limits)
    assert error in execution.error and len(execution.error) <= 20_000
    assert execution.duration_s < 10 and list(tmp_path.iterdir()) == []
    (execution.stdout + execution.error).encode()


def test_endless_output_takes_no_memory(run: Run) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    execution = run("while True: print('x' * 1000)")
    assert f"printed more than {MAX_BYTES // 2**20} MiB" in execution.error
    assert len(execution.stdout) == 20_000 and execution.truncated
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_bytes_that_are_no_text(run: Run) -> None:
    execution = run("import sys\nsys.stdout.buffer.write(b'a\\xff\\xfe\\xed\\xa0\\x80\\0b')")
    assert execution.stdout.startswith("a\ufffd") and execution.stdout.endswith("\0b")
    execution.stdout.encode()


def test_too_many_files_are_not_kept(isolated: None) -> None:
    deep = "import os\nfor _ in range(40):\n    os.mkdir('d')\n    os.chdir('d')"
    sparse = "import os\nfor i in range(20):\n    with open(str(i), 'wb') as f: f.truncate(2**20)"
    for code in (deep, sparse):
        left, found = run_all([code, "import os; print(os.listdir('.'))"], session_id="s", scratch_mb=8)
        assert "none were kept" in left.error
        assert found.stdout == "[]\n"


BAD = "class Bad:\n    def write(self, text): raise ValueError\n    def flush(self): raise SystemExit(3)\n"


@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("import os, sys\nprint('a', flush=True)\nsys.stdout.close()\nsys.stderr = None\nos.close(1)", "a\n"),
        (f"import sys\n{BAD}sys.stdout = sys.stderr = Bad()", ""),
    ],
)
def test_streams_that_are_spoilt_are_no_error(code: str, stdout: str, run: Run) -> None:
    execution = run(code)
    assert (execution.stdout, execution.error) == (stdout, "")


def test_spoiling_what_the_runner_uses(run: Run) -> None:
    code = "import builtins, os, sys\nbuiltins.len = builtins.str = builtins.type = None\nos._exit = sys.modules = None"
    assert run(code, timeout_s=2.0).duration_s < 5
