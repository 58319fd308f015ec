"""Attempts to read what is the host's, and to write anywhere but into the working directory."""

import asyncio
import os
from pathlib import Path

import pytest

from packages.sandbox.tests.conftest import TOOLS, Run, run_all
from slimrl_sandbox.base import Execution
from slimrl_sandbox.local import BubblewrapSandbox

pytestmark = pytest.mark.slow

SECRET = "the-secret-of-the-host"


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the host's; the same text is in the environment."""
    monkeypatch.setenv("SECRET_KEY", SECRET)
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def test_reading_the_environment(run: Run, secret: Path) -> None:
    execution = run("import os\nprint(dict(os.environ), dict(os.environb))")
    assert SECRET not in execution.stdout and "HOME" in execution.stdout


def test_nothing_tells_of_processes_and_of_the_machine(run: Run) -> None:
    code = "import os\nprint(os.path.exists('/proc'), os.path.exists('/sys'), sorted(os.listdir('/dev')))"
    assert run(code).stdout == "False False ['null', 'random', 'urandom']\n"


def test_tracebacks_of_the_runner_name_no_path_of_the_host(run: Run) -> None:
    execution = run("import os, sys\nprint(sys._getframe(1).f_code.co_filename)\nos.closerange(3, 256)")
    assert execution.stdout == "<runner>\n"
    assert "slimrl" not in execution.stderr and "Traceback" in execution.stderr


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/passwd",
        "/etc/hosts",
        str(Path.home() / ".profile"),
        "/home",
        "/var",
        "/run",
        "/sys",
        "/boot",
        "/mnt",
        "/proc/kcore",
        "/proc/1/mem",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/vda",
        "/dev/sda",
        str(Path(__file__)),
        str(Path(__file__).parents[3]),
        str(Path.home() / ".cache"),
    ],
)
def test_reading_the_hosts_files(run: Run, path: str) -> None:
    code = (
        f"import os\ntry:\n    print(os.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r}, 'rb').read(9))"
    )
    assert run(f"{code}\nexcept OSError:\n    print('refused')").stdout == "refused\n"


def test_reading_a_file_of_the_host_by_every_way_in(run: Run, secret: Path) -> None:
    code = (
        "import os\n"
        f"path = {str(secret)!r}\n"
        "ways = '', '/proc/1/root', '/proc/self/root', '/proc/1/cwd', '/proc/self/cwd/..', '/..', '/scratch/../..'\n"
        "for root in ways:\n"
        "    try: print(open(root + path).read())\n"
        "    except OSError: print('refused')\n"
        "for n in range(256):\n"
        "    for place in (f'/proc/self/fd/{n}/..', f'/proc/1/fd/{n}', f'/proc/1/fd/{n}/..'):\n"
        "        try: print(open(place + path).read())\n"
        "        except OSError: pass\n"
        "    try: print(open(path, dir_fd=n).read())\n"
        "    except (OSError, TypeError): pass\n"
    )
    assert set(run(code).stdout.split()) == {"refused"}


def test_leaving_by_the_parents_of_the_working_directory(run: Run, secret: Path) -> None:
    code = f"import os\nfor _ in range(50): os.chdir('..')\nprint(os.getcwd(), os.path.exists({str(secret)!r}))"
    assert run(code).stdout == "/ False\n"


def test_reading_the_files_of_other_sessions(isolated: None) -> None:
    look = (
        "import os\n"
        "for folder, _, files in os.walk('/', onerror=None):\n"
        "    if folder.startswith(('/proc', '/usr')): continue\n"
        "    for name in files:\n"
        "        if name.startswith('my-own'): print(folder, name)"
    )

    async def scenario() -> tuple[Execution, Execution]:
        async with BubblewrapSandbox(TOOLS) as sandbox:
            await sandbox.run("open('my-own', 'w').write('x')", "a")
            running = asyncio.create_task(sandbox.run("open('my-own-2', 'w')\nimport time; time.sleep(1)", "a"))
            await asyncio.sleep(0.2)
            other = await sandbox.run(look, "../a")
            own = await sandbox.run("print(open('my-own').read())", "b/../a")
            await running
            return other, own

    other, own = asyncio.run(scenario())
    assert (other.stdout, other.error) == ("", "")
    assert "FileNotFoundError" in own.error


@pytest.mark.parametrize(
    "directory", ["/", "/usr", "/usr/bin", "/etc", "/dev", "/dev/shm", "/proc", "/proc/self", "/root", "/lib", "/home"]
)
def test_writing_outside_the_working_directory(run: Run, directory: str) -> None:
    code = (
        f"try:\n    open('{directory}/x', 'w').write('x')\n    print('written')\nexcept OSError:\n    print('refused')"
    )
    assert run(code).stdout == "refused\n"


def test_writing_over_what_is_there(run: Run) -> None:
    code = (
        "import os, sys\n"
        "for path in ('/runner.pyc', sys.executable, os.__file__, '/etc/ld.so.cache'):\n"
        "    for do in (lambda: open(path, 'ab').write(b'x'),\n"
        "               lambda: os.remove(path), lambda: os.rename(path, '/tmp/x'),\n"
        "               lambda: os.chmod(path, 0o777), lambda: os.truncate(path, 0), lambda: os.utime(path)):\n"
        "        try: do(); print('done', path)\n"
        "        except OSError: pass"
    )
    execution = run(code)
    assert (execution.stdout, execution.error) == ("", "")


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sysrq-trigger",
        "/proc/1/oom_score_adj",
        "/proc/1/mem",
        "/proc/self/uid_map",
        "/sys/kernel/mm/ksm/run",
        "/sys/fs/cgroup/cgroup.procs",
    ],
)
def test_writing_to_the_kernel(run: Run, path: str) -> None:
    code = (
        f"try:\n    with open('{path}', 'r+b', 0) as file: file.write(b'-1000')\n    print('written')\n"
        "except OSError:\n    print('no')"
    )
    assert run(code).stdout == "no\n"


def test_symbolic_links_out_of_the_working_directory(isolated: None, secret: Path) -> None:
    leave = (
        "import os\n"
        f"for i, target in enumerate(({str(secret)!r}, {str(secret.parent)!r}, '/etc/shadow', '/', '../../..')):\n"
        "    os.symlink(target, f'link{i}')\n"
        "open('kept', 'w')"
    )
    look = f"import os\nprint(sorted(os.listdir('.')), os.path.exists({str(secret)!r}))"
    _, found = run_all([leave, look], session_id="s")
    assert (found.stdout, found.error) == ("['kept'] False\n", "")
    assert secret.read_text() == SECRET


def test_a_link_in_place_of_a_directory_that_was_left(isolated: None, secret: Path) -> None:
    swap = f"import os\nos.rmdir('d')\nos.symlink({str(secret.parent)!r}, 'd')\nopen('a', 'w')"
    *_, found = run_all(["import os\nos.mkdir('d')", swap, "import os\nprint(os.listdir('.'))"], session_id="s")
    assert found.stdout == "['a']\n"
    assert os.listdir(secret.parent) == ["secret"]


def test_hard_links(run: Run) -> None:
    code = (
        "import os, sys\n"
        "for path in (sys.executable, '/usr/bin/env', '/runner.pyc', '/etc/ld.so.cache', '/proc/self/status'):\n"
        "    try: os.link(path, 'x'); print('linked')\n"
        "    except OSError: print('refused')"
    )
    assert set(run(code).stdout.split()) == {"refused"}


def test_names_that_are_odd_live_on_and_do_no_harm(isolated: None) -> None:
    leave = (
        "import os\n"
        "for name in (b'\\xff\\xfe', b'a\\nb', b'-rf', b' ', b'...', b'~', b'$(reboot)'): open(name, 'w')\n"
        "os.mkfifo('fifo')\nos.mkdir('closed', 0)\nos.chmod(os.open('none', os.O_CREAT), 0)"
    )
    left, found = run_all(
        [leave, "import os\nprint(len(os.listdir(b'.')) >= 7, os.path.exists('fifo'))"], session_id="s"
    )
    assert left.error == ""
    assert found.stdout == "True False\n"
