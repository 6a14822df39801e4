"""Write the executable `bin/lean`: a program of one page that calls the shared library's `lean_main`.

No compiler is needed for it. Lean asks the kernel for the path of its own executable, and from that finds its
library in `../lib/lean`, starts the language server's workers and answers `--print-prefix`; so a script that
starts an interpreter would not do.
"""

from __future__ import annotations

import struct

_INTERPRETER = b"/lib64/ld-linux-x86-64.so.2\0"
_NEEDED = ("libleanshared.so", "libc.so.6")
_RUNPATH = "$ORIGIN/../lib/lean"
_IMPORTED = ("lean_main", "__libc_start_main")
_PAGE = 0x1000

# What the ELF standard calls PT_…, DT_… and R_X86_64_….
_LOAD, _DYNAMIC, _INTERP, _HEADERS, _STACK = 1, 2, 3, 6, 0x6474E551
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_RELAENT, _DT_STRSZ, _DT_SYMENT = (
    *(1, 4, 5, 6, 7, 8, 9, 10, 11),
)
_DT_RUNPATH = 29
_GLOB_DAT = 6
_READ, _WRITE, _EXECUTE = 4, 2, 1


def launcher() -> bytes:
    """Return the bytes of the executable, for Linux on x86-64 with glibc.

    Two segments are loaded: the file's beginning, read-only and executable, and its end, writable, one page
    further up in memory than in the file. The writable one holds two pointers, which the dynamic linker fills
    with the addresses of the imported functions.
    """
    strings = b"\0" + b"".join(text.encode() + b"\0" for text in (*_NEEDED, _RUNPATH, *_IMPORTED))

    def string(text: str) -> int:
        return strings.index(b"\0" + text.encode() + b"\0") + 1

    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", string(name), 0x12, 0, 0, 0, 0) for name in _IMPORTED
    )
    hashes = struct.pack("<6I", 1, 3, 0, 0, 0, 0)  # one empty bucket: the program exports nothing

    at = 64 + 6 * 56
    places: dict[str, int] = {}
    sizes = {"interpreter": len(_INTERPRETER), "strings": len(strings), "symbols": len(symbols)}
    sizes |= {"hashes": len(hashes), "relocations": 48, "code": 48}
    for name, size in sizes.items():
        places[name] = at = -(-at // 16) * 16
        at += size
    first = -(-at // 16) * 16
    pointers = first + _PAGE
    dynamic = [(_DT_NEEDED, string(name)) for name in _NEEDED] + [
        (_DT_RUNPATH, string(_RUNPATH)),
        (_DT_HASH, places["hashes"]),
        (_DT_STRTAB, places["strings"]),
        (_DT_STRSZ, len(strings)),
        (_DT_SYMTAB, places["symbols"]),
        (_DT_SYMENT, 24),
        (_DT_RELA, places["relocations"]),
        (_DT_RELASZ, 48),
        (_DT_RELAENT, 24),
        (0, 0),
    ]
    table = b"".join(struct.pack("<QQ", *entry) for entry in dynamic)
    content = {
        "interpreter": _INTERPRETER,
        "strings": strings,
        "symbols": symbols,
        "hashes": hashes,
        "relocations": b"".join(
            struct.pack("<QQq", pointers + 8 * i, (i + 1) << 32 | _GLOB_DAT, 0) for i in range(2)
        ),
        "code": _code(places["code"], pointers),
    }
    segments = [
        (_HEADERS, _READ, 64, 64, 6 * 56, 8),  # from it the dynamic linker knows where the program lies
        (_INTERP, _READ, places["interpreter"], places["interpreter"], len(_INTERPRETER), 1),
        (_LOAD, _READ | _EXECUTE, 0, 0, first, _PAGE),
        (_LOAD, _READ | _WRITE, first, pointers, 16 + len(table), _PAGE),
        (_DYNAMIC, _READ | _WRITE, first + 16, pointers + 16, len(table), 8),
        (_STACK, _READ | _WRITE, 0, 0, 0, 16),
    ]
    image = bytearray(first)
    # A position-independent executable (3) for x86-64 (62) with no sections.
    image[:64] = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(b"\x7fELF\2\1\1", 3, 62, 1, places["code"], 64, 0, 0, 64, 56, len(segments), 0, 0, 0),
    )
    for i, (kind, flags, offset, address, size, align) in enumerate(segments):
        struct.pack_into(
            "<IIQQQQQQ", image, 64 + 56 * i, kind, flags, offset, address, address, size, size, align
        )
    for name, data in content.items():
        image[places[name] : places[name] + len(data)] = data
    return bytes(image) + bytes(16) + table


def _code(at: int, pointers: int) -> bytes:
    """Return the machine code for `__libc_start_main(lean_main, argc, argv, 0, 0, finish, stack)`."""
    code = bytes.fromhex(
        "31ed"  # xor ebp, ebp
        "4989d1"  # mov r9, rdx: what the dynamic linker wants called at exit
        "5e"  # pop rsi: argc
        "4889e2"  # mov rdx, rsp: argv
        "4883e4f0"  # and rsp, -16
        "50"  # push rax: keeps the stack aligned
        "54"  # push rsp: where the stack ends
        "4531c0"  # xor r8d, r8d
        "31c9"  # xor ecx, ecx
    )
    code += b"\x48\x8b\x3d" + struct.pack("<i", pointers - (at + len(code) + 7))  # mov rdi, [lean_main]
    code += b"\xff\x15" + struct.pack("<i", pointers + 8 - (at + len(code) + 6))  # call [__libc_start_main]
    return code + b"\xf4"  # hlt: it does not return
