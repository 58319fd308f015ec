"""The kernels are compiled once, also by several processes at the same time, and a failure is a line of the console."""

import ctypes
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slimrl.config.model import ModelConfig
from slimrl.io.cache import cache_root
from slimrl.launch.parts import open_policy
from slimrl.models.native import build
from slimrl.monitor.console import RunConsole

SMALL = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def no_library() -> Iterator[None]:
    """Forget the loaded library before and after, as in a fresh process."""
    build.load.cache_clear()
    yield
    build.load.cache_clear()


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
    if found is None:
        pytest.skip("there is no C++ compiler")
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


def test_what_is_compiled_is_used_again_for_the_same_flags_sources_compiler_and_processor(
    small_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, header = tmp_path / "not" / "there" / "yet", small_source / "bf16.h"
    newer = script(tmp_path / "own", f'[ "$1" = --version ] && exec echo 99.1; exec {" ".join(compiler())} "$@"')

    def compiled(*command: str) -> Path:
        return build.compile_kernels([*command] or compiler(), directory)

    paths = [compiled()]
    assert ctypes.CDLL(str(paths[0])).answer() == 42
    before = paths[0].stat().st_mtime_ns
    for change in (lambda: header.write_text("// as it was\n"), lambda: header.write_text("// changed\n")):
        change()
        paths.append(compiled())
    (small_source / "notes.md").write_text("no source")
    assert compiled() == paths[-1]
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O1"))
    paths.append(compiled())
    monkeypatch.setattr(build, "_cpu", lambda: "flags: none")
    paths.append(compiled())
    paths.append(compiled(newer))
    assert len(set(paths)) == 6
    assert sorted(directory.glob("[!.]*")) == sorted(path.parent for path in paths)
    assert paths[0].stat().st_mtime_ns == before


@pytest.fixture
def no_compiler(no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No compiler on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


def test_without_a_compiler_a_run_prints_one_line_that_names_a_way_to_get_one(
    no_compiler: None, tiny_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.library() is None
    line = build.why_slow()
    assert "no C++ compiler" in line and "\n" not in line
    assert "apt install g++" in line
    config, console = ModelConfig(name=str(tiny_dir), device="cpu", dtype="float32"), RunConsole()
    for _ in range(2):
        open_policy(config, console)
    assert capsys.readouterr().out.splitlines().count(line) == 1


VERSION = 'case "$*" in *--version) exec echo 1.0;; esac; '


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param("echo cannot say who I am >&2; exit 1", "cannot say who I am", id="useless"),
        pytest.param(f"{VERSION}echo error: no such option >&2; exit 1", "error: no such option", id="failing"),
        pytest.param(f"{VERSION}exit 0", "No such file", id="lazy"),
        pytest.param(f'{VERSION}for out in "$@"; do :; done; echo no library > "$out"', "kernels.so", id="lying"),
    ],
)
def test_a_compiler_that_fails_is_quoted_in_the_line(
    text: str | None, said: str, no_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = str(tmp_path / "own") if text is None else script(tmp_path / "own", text)
    monkeypatch.setenv("CXX", f"{own} -fast")
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    assert build.library() is None
    line = build.why_slow()
    assert f"`{own} -fast` failed" in line and said in line
    assert "b'" not in line and "\n" not in line


@pytest.mark.slow
@pytest.mark.parametrize("source", build.SOURCES)
def test_without_a_matrix_unit_nothing_of_intels_is_needed(source: str, tmp_path: Path) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("needs a compiler for this target")
    (tmp_path / "immintrin.h").write_text("#error there is no such header for other processors\n")
    flags = ["-std=c++17", "-fsyntax-only", "-fopenmp", "-march=x86-64", f"-I{tmp_path}"]
    subprocess.run([*compiler(), *flags, str(build.HERE / source)], check=True)
