"""Programs that try to break out of the sandbox. Knows nothing of the sandbox they are in, nor of who runs them."""

from dataclasses import dataclass

BROKEN = "BROKEN OUT"


@dataclass(frozen=True, slots=True)
class Exploit:
    """Code that prints `BROKEN` if it gets where it must not. `ends_with` must be in what the execution ends with.
    `later` is run when that is over, and does the same."""

    name: str
    code: str
    ends_with: str = ""
    later: str = ""


# In the container the server listens there, whatever port of the host leads to it.
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
# To connect UDP sends nothing: it only asks for a route, which is there behind a firewall too.
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
# Isolated, it sees itself and bubblewrap, which has none.
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
# Not to /usr alone: that is root's, and whoever else is refused there anyway.
_WRITING = f"""\
import os
for directory in ('/', '/usr', '/dev', '/dev/shm', '/tmp', '/var/tmp', '/run'):
    path = directory + '/slimrl-break-out'
    try: open(path, 'x').close()
    except OSError: continue
    os.remove(path)
    if os.path.realpath(directory) != os.getcwd(): print({BROKEN!r}, directory)
"""
# In a namespace of users of its own (CLONE_NEWUSER, CLONE_NEWNS) whoever is let have one may mount.
_MOUNTING = f"""\
import ctypes
libc = ctypes.CDLL(None)
if libc.unshare(0x10020000) == 0 or libc.mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0: print({BROKEN!r})
"""
# Signal 0 only asks, and -1 are all but the first and oneself: isolated, nobody.
_KILLING = f"""\
import os, signal
try:
    os.kill(-1, 0)
    print({BROKEN!r})
except ProcessLookupError:
    print('nobody', flush=True)
    os.kill(1, signal.SIGKILL)
"""
# It runs away from its group, and would be seen by the name under which it listens.
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
# Many files: a single one is held by the limit of its size.
_FILLING = f"""\
for number in range(200):
    with open(str(number), 'wb') as file: file.write(bytes(10**6))
print({BROKEN!r})
"""
# To be traced by one's parent (PTRACE_TRACEME) is what everybody may ask for.
_TRACING = f"import ctypes\nif ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0: print({BROKEN!r})"


def exploits(port: int) -> list[Exploit]:
    """Ways out that a program may try. `port` is the server's own.

    Each succeeds where nothing isolates or limits the program, whoever runs it and whatever the network is like: else
    it would tell nothing. None does harm then, but for those that take all there is of something.
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
