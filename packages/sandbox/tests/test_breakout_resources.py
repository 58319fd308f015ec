"""Attempts to use up what the host has: memory, disk, descriptors, and the patience of whoever reads the output."""

import resource
import tempfile
from pathlib import Path

import pytest

from packages.sandbox.tests.conftest import Run, run_all
from slimrl_sandbox.output import MAX_BYTES

pytestmark = pytest.mark.slow


def test_a_memory_bomb(run: Run) -> None:
    assert "MemoryError" in run("x = bytearray(10**10)").error
    assert "MemoryError" in run("x = []\nwhile True: x.append(bytearray(10**6))", memory_mb=128).error


def test_a_memory_bomb_of_many_processes(run: Run) -> None:
    code = "import mmap, os, time\nfor _ in range(3): os.fork()\n"
    code += "x = mmap.mmap(-1, 60 * 2**20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    code += "for i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(30)"
    execution = run(code, memory_mb=128)
    assert "memory_mb = 128" in execution.error and execution.duration_s < 10


def test_endless_output(run: Run) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    execution = run("while True: print('x' * 1000)")
    assert f"printed more than {MAX_BYTES // 2**20} MiB" in execution.error
    assert len(execution.stdout) == 20_000 and execution.truncated
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize("descriptor", [1, 2])
def test_endless_output_without_a_newline(run: Run, descriptor: int) -> None:
    execution = run(f"import os\nwhile True: os.write({descriptor}, b'x' * 65536)")
    assert "printed more than" in execution.error and execution.truncated


def test_slow_endless_output_ends_with_the_time(run: Run) -> None:
    execution = run("import time\nwhile True:\n    print('x', end='', flush=True)\n    time.sleep(0.01)", timeout_s=0.5)
    assert "timeout_s" in execution.error and set(execution.stdout) == {"x"}


def test_bytes_that_are_no_text(run: Run) -> None:
    execution = run("import sys\nsys.stdout.buffer.write(b'a\\xff\\xfe\\xed\\xa0\\x80\\0b')")
    assert execution.stdout.startswith("a\ufffd") and execution.stdout.endswith("\0b")
    execution.stdout.encode()


def test_printing_surrogates(run: Run) -> None:
    execution = run("print('\\udc80')\nprint('\\ud800')")
    execution.stdout.encode()
    assert "UnicodeEncodeError" in execution.error
    execution.error.encode()


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('x' * 10**7)",
        "raise type('E' * 10**6, (Exception,), {})('x')",
        "class E(Exception):\n    def __str__(self): raise E\nraise E",
        "class E(BaseException):\n    def __str__(self): return 3\nraise E",
        "raise ValueError('\\ud800')",
        "raise KeyboardInterrupt",
        "raise ExceptionGroup('many', [ValueError(i) for i in range(10**5)])",
        "exec('x' * 10**6)",
    ],
)
def test_exceptions_of_every_kind(run: Run, code: str) -> None:
    execution = run(code)
    assert execution.error and len(execution.error) <= 20_000
    execution.error.encode()


def test_deep_recursion(run: Run) -> None:
    execution = run("def f(): f()\nf()")
    assert "RecursionError" in execution.error and len(execution.error) < 4000
    execution = run(
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())"
    )
    assert execution.error


def test_code_that_is_no_text_for_python(run: Run) -> None:
    assert "null bytes" in run("print(1)\0").error
    assert run("(" * 10_000 + ")" * 10_000).error
    assert run("-" * 100_000 + "1").error


def test_one_large_file(run: Run) -> None:
    assert "File too large" in run("open('x', 'wb').write(bytes(17 * 2**20))").error


FILL = "import itertools\nfor i in itertools.count(): open(f'{place}/{i}', 'wb').write(bytes(2**20))"


@pytest.mark.parametrize("place", [".", "/tmp", "/scratch"])
def test_many_large_files(run: Run, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the host keeps what belongs to a sandbox
    execution = run(f"place = {place!r}\n" + FILL, scratch_mb=8, session_id="s")
    assert "No space left" in execution.error
    assert list(tmp_path.iterdir()) == []


def test_files_that_have_no_name_any_more(run: Run) -> None:
    code = (
        "import os\nx = []\n"
        "while True:\n    x.append(open('x', 'wb'))\n    os.remove('x')\n    x[-1].write(bytes(2**20))"
    )
    assert "No space left" in run(code, scratch_mb=8).error


def test_many_small_files(run: Run) -> None:
    code = "import itertools, os\nfor i in itertools.count(): os.mkdir(f'd{i}')"
    execution = run(code, num_files=500)
    assert "num_files = 500" in execution.error and execution.duration_s < 5


def test_too_many_files_are_not_kept(isolated: None) -> None:
    deep = "import os\nfor _ in range(40):\n    os.mkdir('d')\n    os.chdir('d')"
    sparse = "import os\nfor i in range(20):\n    with open(str(i), 'wb') as f: f.truncate(2**20)"
    for code in (deep, sparse):
        left, found = run_all([code, "import os; print(os.listdir('.'))"], session_id="s", scratch_mb=8)
        assert "none were kept" in left.error
        assert found.stdout == "[]\n"


def test_opening_too_many_files(run: Run) -> None:
    assert "Too many open files" in run("x = []\nwhile True: x.append(open('/dev/null'))").error


def test_closing_the_standard_streams(run: Run) -> None:
    execution = run("import os, sys\nprint('a', flush=True)\nsys.stdout.close()\nsys.stderr = None\nos.close(1)")
    assert (execution.stdout, execution.error) == ("a\n", "")


def test_streams_that_do_not_flush(run: Run) -> None:
    code = (
        "import sys\n"
        "class Bad:\n    def write(self, text): raise ValueError\n    def flush(self): raise SystemExit(3)\n"
        "sys.stdout = sys.stderr = Bad()"
    )
    assert run(code).error == ""


def test_spoiling_what_the_runner_uses(run: Run) -> None:
    code = "import builtins, os, sys\nbuiltins.len = builtins.str = builtins.type = None\nos._exit = sys.modules = None"
    execution = run(code, timeout_s=2.0)
    assert execution.duration_s < 5
