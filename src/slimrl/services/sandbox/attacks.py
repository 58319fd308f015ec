"""The module holds programs that try to break out of a sandbox. It knows nothing of how a sandbox is built."""

from dataclasses import dataclass

BROKEN = "BROKEN OUT"


@dataclass(frozen=True, slots=True)
class Exploit:
    """A program that prints `BROKEN` if it succeeds.

    `ends_with` must be in the error with which the execution ends. `later` is a second program that looks, after the
    first has ended, for what that has left behind, and prints `BROKEN` if it finds it.
    """

    name: str
    code: str
    ends_with: str = ""
    later: str = ""


# The server's port inside the container, whatever port of the host is mapped to it.
PORT_IN_CONTAINER = 8080
_SERVER = f"""\
import socket
for port in {{ports}}:
    try:
        socket.create_connection(('127.0.0.1', port), 2)
        print({BROKEN!r})
    except OSError as error:
        print(error)
"""
# Connecting a UDP socket sends nothing: it only looks up a route, so the program succeeds behind a firewall too.
_INTERNET = f"""\
import socket
for family, address in (socket.AF_INET, '1.1.1.1'), (socket.AF_INET6, '2606:4700:4700::1111'):
    try:
        socket.socket(family, socket.SOCK_DGRAM).connect((address, 53))
        print({BROKEN!r})
    except OSError as error:
        print(error)
"""
_NAMES = f"""\
import os, socket
if os.path.exists('/etc/resolv.conf'): print({BROKEN!r})
socket.getaddrinfo('example.com', 80)
print({BROKEN!r})
"""
# In isolation the program sees only itself and bubblewrap, whose environment is empty.
_ENVIRONMENTS = f"""\
import os
own = open('/proc/self/environ', 'rb').read()
for name in os.listdir('/proc'):
    if name.isdecimal():
        try: text = open('/proc/' + name + '/environ', 'rb').read()
        except OSError: continue
        if text not in (own, b''): print({BROKEN!r}, name)
"""
_ENVIRONMENT = f"""\
import os
others = set(os.environ) - {{'HOME', 'TMPDIR', 'PATH', 'LANG', 'LC_CTYPE', 'PWD'}}
print({BROKEN!r} if others else 'clean', *others)
"""
# /usr alone would prove nothing: only root may write there, with or without a sandbox.
_WRITING = f"""\
import os
for directory in ('/', '/usr', '/dev', '/dev/shm', '/tmp', '/var/tmp', '/run'):
    path = directory + '/slimrl-break-out'
    try: open(path, 'x').close()
    except OSError: continue
    os.remove(path)
    if os.path.realpath(directory) != os.getcwd(): print({BROKEN!r}, directory)
"""
# In user and mount namespaces of its own (CLONE_NEWUSER | CLONE_NEWNS) any process may mount.
_MOUNTING = f"""\
import ctypes
libc = ctypes.CDLL(None)
if libc.unshare(0x10020000) == 0 or libc.mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0: print({BROKEN!r})
"""
# Signal 0 only tests whether a process can be signalled; -1 means all but process 1 and oneself: in isolation, none.
_KILLING = f"""\
import os, signal
try:
    os.kill(-1, 0)
    print({BROKEN!r})
except ProcessLookupError:
    print('nobody', flush=True)
    os.kill(1, signal.SIGKILL)
"""
# The child leaves its process group; it would be found later by the abstract socket on which it listens.
_STAYING = """\
import os, socket, time
listening = socket.socket(socket.AF_UNIX)
listening.bind('\\0slimrl-left-behind')
listening.listen()
child = os.fork()
if child == 0:
    os.setsid()
    os.close(1)
    os.close(2)
    time.sleep(30)
    os._exit(0)
while os.getsid(child) != child: time.sleep(0.01)
print('parent')
"""
_STAYED = f"""\
import socket
try:
    socket.socket(socket.AF_UNIX).connect('\\0slimrl-left-behind')
    print({BROKEN!r})
except OSError as error:
    print(error)
"""
# Many files, since the size of a single file has a limit of its own.
_FILLING = f"""\
for number in range(200):
    with open(str(number), 'wb') as file: file.write(bytes(10**6))
print({BROKEN!r})
"""
# PTRACE_TRACEME asks to be traced by one's parent, which needs no privilege.
_TRACING = f"import ctypes\nif ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0: print({BROKEN!r})"


def exploits(port: int) -> list[Exploit]:
    """The exploits, in the order of the report; `port` is the server's own.

    Each succeeds for any user and in any network where nothing isolates or limits it, as it would prove nothing
    otherwise. Without a sandbox none does harm but those that exhaust a resource.
    """
    read = "print(open({!r}, 'rb').read(9))\nprint({!r})"
    link = "import os\nos.symlink('/etc', 'out')\nprint(os.listdir('out'))\n"
    signals = (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, lambda *_: None)\n"
        "    except (OSError, ValueError): pass\nwhile True:\n    try:\n        while True: pass\n"
        "    except BaseException: pass"
    )
    return [
        Exploit("TCP to the server itself", _SERVER.format(ports={port, PORT_IN_CONTAINER})),
        Exploit("a way to the internet", _INTERNET),
        Exploit("names of the internet", _NAMES, "error"),
        Exploit("reading /etc/passwd", read.format("/etc/passwd", BROKEN), "Error"),
        Exploit("reading the environment of other processes", _ENVIRONMENTS),
        Exploit("secrets in the environment", _ENVIRONMENT),
        Exploit("writing out of the working directory", _WRITING),
        Exploit(
            "a link out of the working directory", link + f"print({BROKEN!r} if 'passwd' in os.listdir('out') else '')"
        ),
        Exploit("mounting", _MOUNTING),
        Exploit("killing every process", _KILLING),
        Exploit("a fork bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", "timeout_s"),
        Exploit("a memory bomb", "x = []\nwhile True: x.append(bytearray(10**7))", "Memory"),
        Exploit("endless output", "while True: print('x' * 1000)", "printed more than"),
        Exploit("an endless loop that catches signals", signals, "timeout_s"),
        Exploit("a process that stays behind", _STAYING, later=_STAYED),
        Exploit("filling the disk", _FILLING, "No space left"),
        Exploit("a system call of the tracer", _TRACING),
        Exploit("a tool with an endless argument", "search_pages('x' * 10**8)", ""),
    ]
