"""The module makes the seccomp filter: a BPF program that the kernel runs on each system call.

Namespaces hide the host's files, processes and network. But some parts of the kernel belong to no namespace (VSOCK
sockets, key rings), and some count against no limit (memory files, System V shared memory): the filter denies these.
"""

import errno
import struct

from slimrl.errors import UserError

# Opcodes of classic BPF, the filter's return values, and offsets into the kernel's `struct seccomp_data`.
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16

_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: harmless in a network namespace without interfaces
_NEW_NAMESPACES = 0x7E020000  # the CLONE_NEW* flags
_X32 = 0x40000000  # system calls of the x32 ABI have this bit set, and would pass a filter by number

# name: (x86-64, arm64)
_DENIED = {
    # the processes of others, and namespaces with privileges
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # memory that no limit counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # what programs of this kind never need, and what has let others out before
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "fanotify_init": (300, 262),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
}
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*


def program(machine: str) -> bytes:
    """The filter for an architecture as `platform.machine()` names it. Raises UserError for an unknown one."""
    if machine not in _ARCHITECTURES:
        raise UserError(
            f"the sandbox cannot filter the system calls of a {machine} machine; it knows those of "
            f"{' and '.join(_ARCHITECTURES)}. Run its server on such a machine, and set its address here."
        )
    column = list(_ARCHITECTURES).index(machine)
    # Kill calls by another architecture's numbers, and refuse those of the x32 ABI.
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_JUMP_AT_LEAST, _X32, 0, 1),
        _refuse(errno.ENOSYS),
    ]
    for numbers in _DENIED.values():
        code += [_step(_JUMP_EQUAL, numbers[column], 0, 1), _refuse(errno.EPERM)]
    # The flags of `clone3` are in memory, which a filter cannot read. With ENOSYS C libraries fall back to `clone`.
    code += [_step(_JUMP_EQUAL, _CLONE3[column], 0, 1), _refuse(errno.ENOSYS)]
    # `clone` is refused with flags for new namespaces, `socket` for any family but the three.
    code += [
        _step(_JUMP_EQUAL, _CLONE[column], 0, 4),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _refuse(errno.EPERM),
        _step(_RETURN, _ALLOW),
        _step(_JUMP_EQUAL, _SOCKET[column], 1, 0),
        _step(_RETURN, _ALLOW),
        _step(_LOAD, _FIRST_ARGUMENT),
    ]
    for family in _FAMILIES:
        code += [_step(_JUMP_EQUAL, family, 0, 1), _step(_RETURN, _ALLOW)]
    code.append(_refuse(errno.EAFNOSUPPORT))
    return b"".join(code)


def _step(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction, a `struct sock_filter` of the kernel; jumps are numbers of instructions to skip."""
    return struct.pack("=HBBI", operation, if_true, if_false, value)


def _refuse(error_number: int) -> bytes:
    return _step(_RETURN, _ERRNO | error_number)
