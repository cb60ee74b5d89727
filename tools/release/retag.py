#!/usr/bin/env python3
"""Gives a wheel another platform: its name, the tag within and that file's checksum.

tools/release/retag.py WHEEL PLATFORM
"""

import base64
import hashlib
import os
import re
import sys
import zipfile


def main():
    path, platform = sys.argv[1:]
    old = path[: -len(".whl")].rsplit("-", 1)[1]
    renamed = path.replace(f"-{old}.whl", f"-{platform}.whl")
    with zipfile.ZipFile(path) as wheel:
        members = [(info, wheel.read(info)) for info in wheel.infolist()]
    described = next(data for info, data in members if info.filename.endswith(".dist-info/WHEEL"))
    tagged = re.sub(
        rb"^(Tag: .*-)" + old.encode() + rb"$", rb"\g<1>" + platform.encode(), described, flags=re.M
    )
    digest = base64.urlsafe_b64encode(hashlib.sha256(tagged).digest()).rstrip(b"=")
    line = rb"^(.*\.dist-info/WHEEL),.*$"
    entry = rb"\g<1>,sha256=" + digest + b"," + str(len(tagged)).encode()
    with zipfile.ZipFile(renamed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for info, data in members:
            if info.filename.endswith(".dist-info/WHEEL"):
                data = tagged
            elif info.filename.endswith(".dist-info/RECORD"):
                data = re.sub(line, entry, data, flags=re.M)
            wheel.writestr(info, data, zipfile.ZIP_DEFLATED)
    os.remove(path)


if __name__ == "__main__":
    main()
