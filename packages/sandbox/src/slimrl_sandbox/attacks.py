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
# In isolation there is no /proc.
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
# The child leaves its process group; it would be found later by its name. In isolation there is no /proc to look in.
_STAYING = """\
import ctypes, os, time
child = os.fork()
if child == 0:
    os.setsid()
    ctypes.CDLL(None).prctl(15, b'slimrl-left', 0, 0, 0)
    os.close(1)
    os.close(2)
    time.sleep(30)
    os._exit(0)
while os.getsid(child) != child: time.sleep(0.01)
time.sleep(0.1)
print('parent')
"""
_STAYED = f"""\
import os
for name in os.listdir('/proc'):
    if name.isdecimal() and open('/proc/' + name + '/comm').read() == 'slimrl-left\\n': print({BROKEN!r})
"""
# Many files, since the size of a single file has a limit of its own.
_FILLING = f"""\
for number in range(200):
    with open(str(number), 'wb') as file: file.write(bytes(10**6))
print({BROKEN!r})
"""
# PTRACE_TRACEME asks to be traced by one's parent, which needs no privilege.
_TRACING = f"import ctypes\nif ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0: print({BROKEN!r})"

# Buffers of sockets are the kernel's memory, and no process's.
_SOCKETS = f"""\
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
        print({BROKEN!r}, family.name)
    except OSError as error:
        print(error)
"""
# Pages of a shared mapping without a file stay when the process has dropped them, and then belong to nobody.
_DROPPED = f"""\
import mmap
x = mmap.mmap(-1, 2**20)
x[0] = 1
x.madvise(mmap.MADV_DONTNEED)
if x[0] == 1: print({BROKEN!r})
"""
# One page in each GB: zeros that are only read count for no process, but two pages of tables for each do exist. The
# programs before the limit of processes hold 8 GB.
_TABLES = f"""\
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype, place = ctypes.c_void_p, ctypes.c_void_p
libc.mmap.argtypes = [place, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for _ in range(3): os.fork()
for number in range(20_000):  # PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
    ctypes.string_at(libc.mmap((1 << 44) + (number << 30), 4096, 1, 0x100022, -1, 0), 1)
time.sleep(0.5)
print({BROKEN!r})
"""
# Locks and watches on files that all see carry signals between programs, and to the host; both in kernel memory.
_LOCKING = f"""\
import fcntl, os, sys
file = open(sys.executable, 'rb')
attempts = {{
    'flock': lambda: fcntl.flock(file, fcntl.LOCK_SH),
    'fcntl': lambda: fcntl.lockf(file, fcntl.LOCK_SH),
    'notify': lambda: fcntl.fcntl(os.open('/usr/bin', 0), fcntl.F_NOTIFY, fcntl.DN_ACCESS),
}}
for name, attempt in attempts.items():
    try:
        attempt()
        print({BROKEN!r}, name)
    except OSError as error:
        print(name, error)
"""
_WATCHING = f"""\
import ctypes
libc = ctypes.CDLL(None)
if libc.inotify_add_watch(libc.inotify_init1(0), b'/usr/bin', 33) >= 0: print({BROKEN!r})
"""
# `io_setup`: of all requests for asynchronous I/O the machine has 65,536.
_POOLS = f"""\
import ctypes, os, platform
number = 206 if platform.machine() == 'x86_64' else 0
if ctypes.CDLL(None).syscall(number, 1000, ctypes.byref(ctypes.c_ulong(0))) == 0: print({BROKEN!r}, 'io_setup')
try:
    os.close(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
    print({BROKEN!r}, 'a terminal')
except OSError as error:
    print(error)
"""
_TELLING = f"""\
for path in ('/proc/cmdline', '/proc/self/mountinfo', '/proc/version', '/proc/meminfo'):
    try: print({BROKEN!r}, len(open(path).read()))
    except OSError as error: print(error)
"""


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
        Exploit("sockets", _SOCKETS),
        Exploit("shared memory that no process owns", _DROPPED, "Operation not permitted"),
        Exploit("memory in page tables", _TABLES, "memory_mb"),
        Exploit("locks and notices on shared files", _LOCKING),
        Exploit("watching the host's programs", _WATCHING),
        Exploit("pools of the whole machine", _POOLS),
        Exploit("files that tell of the machine", _TELLING),
        Exploit("a tool with an endless argument", "search_pages('x' * 10**8)", ""),
    ]
