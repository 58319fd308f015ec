"""The kernels are compiled once, also by several processes at the same time, and a failure is a warning."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slimrl.io.cache import cache_root
from slimrl.models.native import build

SMALL = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def no_library() -> Iterator[None]:
    """Forget the loaded library before and after, as in a fresh process."""
    build.library.cache_clear()
    yield
    build.library.cache_clear()


@pytest.fixture
def small_source(kernels: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small source in the place of the kernels, which compiles fast."""
    directory = tmp_path / "sources"
    directory.mkdir()
    (directory / "small.cpp").write_text(SMALL)
    monkeypatch.setattr(build, "HERE", directory)
    monkeypatch.setattr(build, "SOURCES", ("small.cpp",))
    return directory


def compiler() -> list[str]:
    found = build.find_compiler()
    assert found is not None
    return found


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_kernels_are_compiled_into_the_cache_and_loaded(kernels: None) -> None:
    library = build.library()
    assert library is not None
    assert library.has_tiles() in (0, 1)
    assert [str(path) for path in (cache_root() / "kernels").glob("*/*.so")] == [library._name]
    assert build.library() is library


def test_what_is_compiled_is_used_again(small_source: Path, tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there" / "yet"
    path = build.compile_kernels(compiler(), directory)
    assert [*directory.glob("[!.]*")] == [path.parent]
    assert ctypes.CDLL(str(path)).answer() == 42
    before = path.stat().st_mtime_ns
    assert build.compile_kernels(compiler(), directory) == path
    assert path.stat().st_mtime_ns == before


def test_a_damaged_library_is_compiled_again(
    small_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = build.compile_kernels(compiler(), tmp_path)
    whole = bytearray(path.read_bytes())
    path.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
    assert ctypes.CDLL(str(build.compile_kernels(compiler(), tmp_path))).answer() == 42
    assert "kernels.so is not as written" in capsys.readouterr().err


def test_other_flags_sources_compilers_and_processors_have_files_of_their_own(
    small_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "kernels"
    paths = [build.compile_kernels(compiler(), directory)]
    header = small_source / "bf16.h"
    header.write_text("// as it was\n")
    paths.append(build.compile_kernels(compiler(), directory))
    header.write_text("// changed\n")
    paths.append(build.compile_kernels(compiler(), directory))
    (small_source / "notes.md").write_text("no source")
    assert build.compile_kernels(compiler(), directory) == paths[-1]
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O1"))
    paths.append(build.compile_kernels(compiler(), directory))
    monkeypatch.setattr(build, "_cpu", lambda: "flags: none")
    paths.append(build.compile_kernels(compiler(), directory))
    own = script(tmp_path / "own", f'exec {" ".join(compiler())} "$@"')
    paths.append(build.compile_kernels([own], directory))
    script(tmp_path / "own", f'case "$*" in *--version) exec echo 99.1;; esac; exec {" ".join(compiler())} "$@"')
    paths.append(build.compile_kernels([own], directory))
    assert len(set(paths)) == 7
    assert sorted(directory.glob("[!.]*")) == sorted(path.parent for path in paths)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_the_processor_is_named_by_what_it_can_do() -> None:
    assert build._cpu() in Path("/proc/cpuinfo").read_text().splitlines()


def test_without_a_compiler_a_warning_says_how_to_get_one(
    no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.warns(UserWarning, match=r"No C\+\+ compiler found.*`apt install g\+\+`.*\$CXX"):
        assert build.library() is None
    assert build.library() is None  # and is not said again


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo cannot say who I am >&2; exit 1", "cannot say who I am"),
        (
            'case "$*" in *--version) exec echo 1.0;; esac; echo error: no such option >&2; exit 1',
            "error: no such option",
        ),
        ('case "$*" in *--version) exec echo 1.0;; esac; exit 0', "No such file"),
        (
            'case "$*" in *--version) exec echo 1.0;; esac; for out in "$@"; do :; done; echo no library > "$out"',
            "kernels.so",
        ),
    ],
    ids=["useless", "failing", "lazy", "lying"],
)
def test_a_compiler_that_fails_is_quoted_in_a_warning(
    text: str, said: str, no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = script(tmp_path / "own", text)
    monkeypatch.setenv("CXX", f"{own} -fast")
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    with pytest.warns(UserWarning, match=r"could not be compiled with `\S*own -fast`") as caught:
        assert build.library() is None
    (message,) = [str(warning.message) for warning in caught]
    assert said in message
    assert "b'" not in message


def test_a_compiler_that_does_not_exist_is_named_in_a_warning(
    no_library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match=r"(?s)could not be compiled with `no-such-compiler`.*No such file"):
        assert build.library() is None


def test_nothing_is_left_of_a_compilation_that_failed(small_source: Path, tmp_path: Path) -> None:
    (small_source / "small.cpp").write_text("this is not C++\n")
    with pytest.raises(subprocess.CalledProcessError):
        build.compile_kernels(compiler(), tmp_path / "kernels")
    assert list((tmp_path / "kernels").glob("[!.]*")) == []


PROCESS = """
import sys
from pathlib import Path
from slimrl.models.native import build
build.HERE, build.SOURCES = Path(sys.argv[1]), ("small.cpp",)
assert build.library().answer() == 42
"""


@pytest.mark.slow
def test_of_two_processes_that_need_a_library_at_once_one_compiles_it_and_both_get_it(
    small_source: Path, tmp_path: Path
) -> None:
    compilations = tmp_path / "compilations"
    compilations.mkdir()
    slow = f'touch {compilations}/$$; sleep 1; exec {" ".join(compiler())} "$@"'
    own = script(tmp_path / "own", f'case "$*" in *--version) exec echo 1.0;; esac\n{slow}')
    environment = {**os.environ, "CXX": own, "SLIMRL_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-W", "error", "-c", PROCESS, str(small_source)]
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert len(list(compilations.iterdir())) == 1
    assert len(list((tmp_path / "cache" / "kernels").glob("[!.]*"))) == 1
