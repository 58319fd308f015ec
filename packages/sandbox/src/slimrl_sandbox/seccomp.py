"""Makes the seccomp filter: a BPF program that the kernel runs on each system call.

Namespaces hide the host's files, processes and network. But some parts of the kernel belong to no namespace (file
locks, key rings, huge pages), and some have no limit (memory files, System V shared memory). The filter refuses calls
that use these parts, access other processes, make namespaces or watch shared files. It also refuses calls that allowed
escapes in the past. It lists refused calls instead of allowed calls, because programs of any kind run in the sandbox.
Calls that are newer than the list are refused as unknown (ENOSYS).
"""

import errno
import struct

from slimrl.errors import UserError

# Opcodes of classic BPF, the filter's return values, and offsets into the kernel's `struct seccomp_data`.
_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _ARGUMENT_BYTES = 0, 4, 16, 8

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
# Calls from this number on are newer than the list, so all of them are refused. From 424 on, numbers are the same on
# all architectures. The limit also refuses the x32 ABI, because its numbers are larger. Otherwise its calls could
# bypass the filter.
_FIRST_UNKNOWN = 451

# Refused calls by their error: name, number on x86-64 and on arm64; a dash if an architecture does not have it. Calls
# that need a privilege are not listed: no process in the sandbox has one, or can get one in a new namespace.
_REFUSED = {
    errno.EPERM: """
        ptrace 101 117            process_vm_readv 310 270  process_vm_writev 311 271  process_madvise 440 440
        process_mrelease 448 448  migrate_pages 256 238     move_pages 279 239         kcmp 312 272
        pidfd_getfd 438 438       unshare 272 97            setns 308 268              open_tree 428 428
        name_to_handle_at 303 264

        memfd_create 319 279      memfd_secret 447 447      shmget 29 194              msgget 68 186
        semget 64 190             mq_open 240 180           io_setup 206 0             vmsplice 278 75
        setsockopt 54 208         seccomp 317 277           landlock_create_ruleset 444 444

        inotify_init 253 -        inotify_init1 294 26      fanotify_init 300 262      flock 73 32
        mincore 27 232

        bpf 321 280               perf_event_open 298 241   userfaultfd 323 282        io_uring_setup 425 425
        io_uring_enter 426 426    io_uring_register 427 427 add_key 248 217            request_key 249 218
        keyctl 250 219            personality 135 92        modify_ldt 154 -           syslog 103 116
    """,
    # Extended attributes use kernel memory beyond the file's size. Copying programs ignore this error.
    errno.EOPNOTSUPP: "setxattr 188 5  lsetxattr 189 6  fsetxattr 190 7",
    # A program has no peer to connect to, and TCP's buffers count against the whole machine's limit.
    errno.EAFNOSUPPORT: "socket 41 198",
    # The flags of `clone3` are in memory, which a filter cannot read. With ENOSYS C libraries fall back to `clone`.
    errno.ENOSYS: "clone3 435 435",
}

_NEW_NAMESPACES = 0x7E020000  # the CLONE_NEW* flags
_AF_UNIX = 1
_SHARED_ANONYMOUS, _HUGE_PAGES = 0x21, 0x40000  # flags of `mmap`
_FCNTL = (
    *(5, 6, 7, 36, 37, 38),  # F_GETLK, F_SETLK, F_SETLKW and F_OFD_*: locks; their number is not limited
    *(1024, 1026),  # F_SETLEASE, F_NOTIFY: these reveal who uses a file
    1031,  # F_SETPIPE_SZ
)


def program(machine: str) -> bytes:
    """Return the filter for an architecture, named as by `platform.machine()`. Raises UserError if the architecture is
    unknown."""
    if machine not in _ARCHITECTURES:
        raise UserError(
            f"the sandbox cannot filter the system calls of a {machine} machine; it knows those of "
            f"{' and '.join(_ARCHITECTURES)}. Run its server on such a machine, and set its address here."
        )
    column = list(_ARCHITECTURES).index(machine)
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _step(_RETURN, _KILL),  # a call with the numbers of another architecture
        _step(_LOAD, _NUMBER),
        _step(_JUMP_AT_LEAST, _FIRST_UNKNOWN, 0, 1),
        _refuse(errno.ENOSYS),
    ]
    for error_number, calls in _REFUSED.items():
        for number in calls.split()[1 + column :: 3]:
            if number != "-":
                code += _if_equal(int(number), [_refuse(error_number)])
    for numbers, steps in _by_argument():
        code += _if_equal(numbers[column], [*steps, _step(_RETURN, _ALLOW)])
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _by_argument() -> list[tuple[tuple[int, int], list[bytes]]]:
    """Return a pair for each call that is refused only for some arguments: the call's numbers on x86-64 and arm64, and
    the steps that check the arguments."""
    refuse = [_refuse(errno.EPERM)]
    fcntl = [_load_argument(1)]
    for command in _FCNTL:
        fcntl += _if_equal(command, refuse)
    mmap = [
        _load_argument(3),
        *_if_any_bit(_HUGE_PAGES, refuse),
        # Shared anonymous pages belong to no process and no file, so they still exist after a process has dropped them.
        _step(_AND, _SHARED_ANONYMOUS),
        *_if_equal(_SHARED_ANONYMOUS, refuse),
    ]
    return [
        ((56, 220), [_load_argument(0), *_if_any_bit(_NEW_NAMESPACES, refuse)]),  # clone
        # socketpair; asyncio needs a pair within a process
        ((53, 199), [_load_argument(0), _step(_JUMP_EQUAL, _AF_UNIX, 1, 0), _refuse(errno.EAFNOSUPPORT)]),
        ((72, 25), fcntl),
        ((327, 286), [_load_argument(5), _step(_JUMP_EQUAL, 0, 1, 0), _refuse(errno.EOPNOTSUPP)]),  # preadv2
        ((9, 222), mmap),
    ]


def _load_argument(index: int) -> bytes:
    """Return the instruction that loads the lower half of a call's argument. This half has all bits of a flag or a
    command."""
    return _step(_LOAD, _FIRST_ARGUMENT + _ARGUMENT_BYTES * index)


def _if_equal(value: int, steps: list[bytes]) -> list[bytes]:
    return [_step(_JUMP_EQUAL, value, 0, len(steps)), *steps]


def _if_any_bit(bits: int, steps: list[bytes]) -> list[bytes]:
    return [_step(_JUMP_ANY_BIT, bits, 0, len(steps)), *steps]


def _step(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction, a `struct sock_filter` of the kernel; jumps are numbers of instructions to skip."""
    return struct.pack("=HBBI", operation, if_true, if_false, value)


def _refuse(error_number: int) -> bytes:
    return _step(_RETURN, _ERRNO | error_number)
