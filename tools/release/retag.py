#!/usr/bin/env python3
"""Makes a wheel for another platform of one: its name, the tag within and that file's checksum.

tools/release/retag.py WHEEL PLATFORM [EXTENSION]

EXTENSION, for example _core.cpython-313-x86_64-linux-gnu.so, takes the place of the wheel's
extension; the new wheel is for the interpreter that the file's name says.
"""

import base64
import hashlib
import os
import re
import sys
import zipfile


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def main():
    path, platform, *extension = sys.argv[1:]
    base, python, _, old = path[: -len(".whl")].rsplit("-", 3)
    wanted = python
    if extension:
        wanted = "cp" + re.search(r"\.cpython-(\d+)-", os.path.basename(extension[0])).group(1)
    with zipfile.ZipFile(path) as wheel:
        members = [(info, wheel.read(info)) for info in wheel.infolist()]

    changed = {}  # name -> (new name, new bytes)
    for info, data in members:
        name = info.filename
        if name.endswith(".dist-info/WHEEL"):
            tag = f"Tag: {python}-{python}-{old}".encode()
            if tag not in data:
                sys.exit(f"retag.py: {path}: {name} has no '{tag.decode()}'")
            changed[name] = (name, data.replace(tag, f"Tag: {wanted}-{wanted}-{platform}".encode()))
        elif extension and re.fullmatch(r"moeflux/_core\..*\.so", name):
            with open(extension[0], "rb") as file:
                changed[name] = ("moeflux/" + os.path.basename(extension[0]), file.read())
    if len(changed) != 1 + len(extension):
        sys.exit(f"retag.py: {path}: expected one file WHEEL and one moeflux/_core.*.so")

    renamed = f"{base}-{wanted}-{wanted}-{platform}.whl"
    with zipfile.ZipFile(renamed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for info, data in members:
            if info.filename.endswith(".dist-info/RECORD"):
                lines = [
                    record_line(*changed[line.split(",")[0]])
                    if line.split(",")[0] in changed
                    else line
                    for line in data.decode().splitlines()
                ]
                data = ("\n".join(lines) + "\n").encode()
            elif info.filename in changed:
                info.filename, data = changed[info.filename]
            wheel.writestr(info, data, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
