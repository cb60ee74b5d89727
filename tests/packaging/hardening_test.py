#!/usr/bin/env python3
"""The built program and the shared library are hardened.

They are position independent, their relocations are read-only and resolved at the start, their
stack is not executable, stack frames and lengths of buffers are checked, there are no search paths.

    tests/packaging/hardening_test.py FILE...

Reads what readelf prints. With --selftest COMPILER it first builds programs that lack each of them.
"""

import os
import re
import subprocess
import sys
import tempfile


def readelf(path, *options):
    return subprocess.run(
        ["readelf", "--wide", *options, path],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ).stdout


def missing(path):
    """Returns the properties that the file lacks."""
    header, dynamic = readelf(path, "--file-header", "--segments"), readelf(path, "--dynamic")
    imports = re.findall(r"\bUND +(\w+)", readelf(path, "--dyn-syms"))
    stack = re.search(r"GNU_STACK.* ([RWE ]{3}) 0x\w+\s*$", header, re.MULTILINE)
    found = {
        "position independent": re.search(r"Type: +DYN", header),
        "RELRO": "GNU_RELRO" in header,
        "BIND_NOW": re.search(r"\bBIND_NOW\b|Flags:.* NOW\b", dynamic),
        "a stack that is not executable": stack and "E" not in stack.group(1),
        "no text relocations": "TEXTREL" not in dynamic,
        "no search path": "RPATH" not in dynamic and "RUNPATH" not in dynamic,
        "stack protector": "__stack_chk_fail" in imports,
        "FORTIFY": any(re.fullmatch(r"__\w+_chk", name) for name in imports),
    }
    return [what for what, is_there in found.items() if not is_there]


def selftest(compiler):
    """A plain program lacks what its flags leave out."""
    source = (
        "#include <cstring>\n"
        "int main(int n, char** a) { char t[9]; strcpy(t, a[n - 1]); return t[0]; }\n"
    )
    good = [
        "-O2",
        "-fPIE",
        "-pie",
        "-U_FORTIFY_SOURCE",
        "-D_FORTIFY_SOURCE=2",
        "-fstack-protector-strong",
        "-Wl,-z,relro,-z,now",
    ]
    cases = {
        "position independent": ["-fno-pie", "-no-pie"],
        "RELRO": ["-Wl,-z,norelro"],
        "BIND_NOW": ["-Wl,-z,lazy"],
        "a stack that is not executable": ["-Wl,-z,execstack"],
        "no search path": ["-Wl,-rpath,/nowhere"],
        "stack protector": ["-fno-stack-protector"],
        "FORTIFY": ["-U_FORTIFY_SOURCE"],
    }
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program")
        for what, flags in [(None, []), *cases.items()]:
            subprocess.run(
                [compiler, "-x", "c++", "-", "-o", program, *good, *flags],
                input=source,
                text=True,
                check=True,
            )
            expected = [what] if what else []
            assert missing(program) == expected, (flags, missing(program), expected)
    print(f"hardening_test: {len(cases)} faults found in programs that have them")


def main():
    if sys.argv[1] == "--selftest":
        selftest(sys.argv[2])
        sys.argv[1:3] = []
    lacking = {path: missing(path) for path in sys.argv[1:]}
    for path, words in lacking.items():
        print(f"{path}: {'lacks ' + ', '.join(words) if words else 'hardened'}")
    return any(lacking.values())


if __name__ == "__main__":
    sys.exit(main())
