"""What a program gets and what comes back, where nothing is wrong with it; and with the limits, where something is."""

import asyncio
import os
import resource
import time

import pytest

from packages.sandbox.tests.conftest import TOOLS, Run, run_all
from slimrl.errors import UserError
from slimrl_sandbox.base import Execution, Limits
from slimrl_sandbox.local import BubblewrapSandbox
from slimrl_sandbox.sessions import Keeping


def test_what_is_printed_comes_back(run: Run) -> None:
    execution = run("import sys\nprint('out', 2 + 2)\nprint('err', file=sys.stderr)")
    assert (execution.stdout, execution.stderr, execution.error) == ("out 4\n", "err\n", "")
    assert not execution.truncated and execution.duration_s > 0


def test_the_program_is_main(run: Run) -> None:
    code = "from dataclasses import dataclass\n@dataclass\nclass A:\n    b: int\nif __name__ == '__main__': print(A(3))"
    assert run(code).stdout == "A(b=3)\n"


def test_descriptors_of_any_number_will_do(run: Run) -> None:
    """There are as many as a server has open, and select() knows none above 1,023."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2048:
        pytest.skip("this process may not have as many files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert run("print(1)").stdout == "1\n"
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_standard_library_is_there(run: Run) -> None:
    code = "import json, re, math, collections, datetime, ctypes, sqlite3, subprocess, socket, threading, asyncio"
    assert run(code).error == ""


def test_an_exception_comes_with_its_lines(run: Run) -> None:
    execution = run("def f(x):\n    return 1 / x\n\nprint('before')\nf(0)")
    assert execution.stdout == "before\n"
    assert execution.error == (
        "Traceback (most recent call last):\n  line 5: f(0)\n  line 2, in f: return 1 / x\n"
        "ZeroDivisionError: division by zero"
    )


def test_a_syntax_error_comes_with_its_line(run: Run) -> None:
    assert run("x = 1\nif x\n  pass").error == (
        "Traceback (most recent call last):\n  line 2: if x\nSyntaxError: expected ':'"
    )


@pytest.mark.parametrize("code", ["raise SystemExit", "import sys; sys.exit(0)", "exit_code = 0; raise SystemExit(0)"])
def test_an_exit_is_no_error(run: Run, code: str) -> None:
    assert run(code).error == ""


def test_an_exit_with_a_status_is_one(run: Run) -> None:
    assert run("raise SystemExit(3)").error == "SystemExit: 3"


def test_threads_are_waited_for(run: Run) -> None:
    code = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"
    assert run(code).stdout == "late\n"


def test_surrogates_in_the_code_are_replaced(run: Run) -> None:
    assert run("print('\ud800')").stdout == "?\n"


def test_tools_are_in_scope(run: Run) -> None:
    assert run("print(shout('a'), shout(text='ü\\ud800'))").stdout == "A Ü?\n"


def test_a_tool_returns_what_json_can_spell(run: Run) -> None:
    rows = [{"id": "a", "n": 1, "x": 0.5, "none": None, "inner": {"k": [True]}}]
    assert run("print(rows(''))", tools={"rows": lambda _: rows}).stdout == f"{rows}\n"


def test_a_tools_exception_reaches_the_code(run: Run) -> None:
    execution = run("try:\n    broken('x')\nexcept ToolError as error:\n    print(error)\nbroken('y')")
    assert execution.stdout == "'there is no x'\n"
    assert execution.error.endswith("line 5: broken('y')\nToolError: 'there is no y'")


@pytest.mark.parametrize("call", ["shout()", "shout('a', 'b')", "shout(3)", "shout(['a'])"])
def test_a_call_that_is_none_is_told(run: Run, call: str) -> None:
    assert 'TypeError: shout takes one text, as in shout("text")' in run(call).error


def test_a_result_that_json_cannot_spell_is_told(run: Run) -> None:
    assert "not JSON serializable" in run("odd('')", tools={"odd": lambda _: object()}).error


def test_a_result_that_is_too_large_is_told(run: Run) -> None:
    assert "larger than 1 MiB" in run("large('')", tools={"large": lambda _: "x" * 2**21}).error


@pytest.mark.slow
def test_a_tool_that_hangs_ends_with_the_time(run: Run) -> None:
    execution = run("hang('')", tools={"hang": lambda _: time.sleep(1.5)}, timeout_s=0.3)
    assert "timeout_s = 0.3" in execution.error and execution.duration_s < 1.5


def test_a_tool_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(UserError, match="two words"):
        BubblewrapSandbox({"two words": str.upper})


def test_files_live_on_within_a_session(isolated: None) -> None:
    leave = "import os\nopen('a', 'w').write('x')\nos.makedirs('d/e')\nopen('/tmp/d/e/b', 'wb').write(bytes(5000))"
    look = "import os\nprint(open('a').read(), len(open('d/e/b', 'rb').read()))\nos.remove('a')"
    _, found, gone = run_all([leave, look, "open('a')"], session_id="s")
    assert (found.stdout, found.error) == ("x 5000\n", "")
    assert "FileNotFoundError" in gone.error


def test_files_do_not_live_on_without_a_session(isolated: None) -> None:
    assert "FileNotFoundError" in run_all(["open('a', 'w')", "open('a')"])[1].error


@pytest.mark.slow
def test_a_session_that_is_not_used_is_thrown_away(isolated: None) -> None:
    _, _, late = run_all(
        ["open('a', 'w')", "import time; time.sleep(0.3)", "open('a')"], session_id="s", keeping=Keeping(ttl_s=60)
    )
    assert late.error == ""

    async def scenario() -> Execution:
        async with BubblewrapSandbox(TOOLS, num_spare=0, keeping=Keeping(ttl_s=0.1)) as sandbox:
            await sandbox.run("open('a', 'w')", "s")
            await asyncio.sleep(0.2)
            return await sandbox.run("open('a')", "s")

    assert "FileNotFoundError" in asyncio.run(scenario()).error


def test_executions_of_a_session_take_turns(isolated: None) -> None:
    code = "import os\nn = int(open('n').read()) if os.path.exists('n') else 0\nopen('n', 'w').write(str(n + 1))"

    async def scenario() -> Execution:
        async with BubblewrapSandbox(TOOLS) as sandbox:
            await asyncio.gather(*(sandbox.run(code, "s") for _ in range(10)))
            return await sandbox.run("print(open('n').read())", "s")

    assert asyncio.run(scenario()).stdout == "10\n"


@pytest.mark.nightly
def test_five_hundred_at_once_all_come_back(isolated: None) -> None:
    async def scenario() -> list[Execution]:
        async with BubblewrapSandbox(TOOLS) as sandbox:
            codes = (f"print(shout('a{i}'))" for i in range(500))
            return await asyncio.gather(*(sandbox.run(code) for code in codes))

    assert [execution.stdout for execution in asyncio.run(scenario())] == [f"A{i}\n" for i in range(500)]


def test_a_cancelled_execution_leaves_the_sandbox_working(isolated: None) -> None:
    async def scenario() -> Execution:
        async with BubblewrapSandbox(TOOLS, num_at_once=1) as sandbox:
            running = asyncio.create_task(sandbox.run("while True: pass", "s"))
            await asyncio.sleep(0.3)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return await sandbox.run("print(1)", "s")

    assert asyncio.run(scenario()).stdout == "1\n"


def test_descriptors_do_not_leak(isolated: None) -> None:
    def num_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    run_all(["print(1)"])
    before = num_open()
    run_all(["print(1)", "1/0", "import os; os._exit(1)"], session_id="s", num_spare=2)
    assert num_open() <= before


def test_a_spare_process_that_has_died_is_replaced(isolated: None) -> None:
    async def scenario() -> list[Execution]:
        async with BubblewrapSandbox(TOOLS, num_spare=1) as sandbox:
            first = await sandbox.run("print(1)")
            await asyncio.sleep(0.1)
            for spare in sandbox._spare:
                spare._process.kill()
                spare._process.wait()
            return [first, await sandbox.run("print(2)"), await sandbox.run("print(3)")]

    assert [execution.stdout for execution in asyncio.run(scenario())] == ["1\n", "2\n", "3\n"]


def test_one_sandbox_serves_one_loop_after_another(isolated: None) -> None:
    sandbox = BubblewrapSandbox(TOOLS)
    for number in range(3):
        assert asyncio.run(sandbox.run(f"print({number})", "s")).stdout == f"{number}\n"
    sandbox.close()


def test_time_out(run: Run) -> None:
    execution = run("print('before')\nwhile True: pass", timeout_s=0.5)
    assert execution.stdout == "before\n"
    assert execution.error == "the code took longer than timeout_s = 0.5 s, and was ended"
    assert 0.5 <= execution.duration_s < 10


@pytest.mark.slow
def test_the_sandbox_s_own_limit_of_time_holds(run: Run) -> None:
    assert "timeout_s = 0.3 s" in run("import time; time.sleep(9)", wall_s=0.3, timeout_s=100.0).error


def test_a_time_out_of_nothing_is_refused(isolated: None) -> None:
    with pytest.raises(UserError, match="timeout_s = 0"):
        run_all(["print(1)"], timeout_s=0.0)


@pytest.mark.slow
def test_cpu_time_ends(run: Run) -> None:
    assert run("while True: pass", cpu_s=1).error == "the code used more than cpu_s = 1 s of CPU time, and was ended"


def test_output_is_cut(run: Run) -> None:
    execution = run("print('ü' * 1000)", output_chars=10)
    assert (execution.stdout, execution.truncated) == ("ü" * 10, True)
    execution = run("print('ü' * 9)", output_chars=10)
    assert (execution.stdout, execution.truncated) == ("ü" * 9 + "\n", False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RLIMIT_CPU", 10),
        ("RLIMIT_AS", 512 * 2**20),
        ("RLIMIT_NPROC", 16),
        ("RLIMIT_FSIZE", 16 * 2**20),
        ("RLIMIT_NOFILE", 64),
        ("RLIMIT_CORE", 0),
    ],
)
def test_limits_are_set_and_cannot_be_raised(run: Run, name: str, expected: int) -> None:
    which = getattr(resource, name)
    hard = expected + 1 if name == "RLIMIT_CPU" else expected
    code = (
        f"import resource\nprint(resource.getrlimit({which}))\n"
        f"try:\n    resource.setrlimit({which}, ({hard + 1}, {hard + 1}))\n"
        "except (ValueError, OSError):\n    print('no')"
    )
    assert run(code).stdout == f"({expected}, {hard})\nno\n"


@pytest.mark.parametrize("limits", [{"cpu_s": 0}, {"wall_s": float("inf")}, {"memory_mb": -1}])
def test_a_limit_that_is_none_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(limits))):
        Limits(**limits)  # type: ignore[arg-type]
