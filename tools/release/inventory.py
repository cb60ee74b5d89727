#!/usr/bin/env python3
"""Lists everything inside a release: an SBOM (CycloneDX 1.5, JSON) and the licences.

    tools/release/inventory.py --version 0.2.0 --root ROOT --sbom FILE --licences FILE \\
        [--architecture arm64] [--cuda build/cuda-toolkit/.../lib/libcudart_static.a]

Crates come from cargo and rust/Cargo.lock, with their checksums and licence files. C++ libraries
come from ROOT/versions, which tools/release/root.sh writes, and from the packages' copyright files
in ROOT. Packages of the page are those of build/web/packages.txt, which web/build.mjs writes, with
the hashes of web/package-lock.json. CUDA's runtime comes with the wheel that
tools/install_cuda.sh brought. Fails where one of them has no licence text. The same inputs
give the same bytes.
"""

import argparse
import base64
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Debian's package -> the licence in SPDX's words: all of ROOT/versions that is linked.
LIBRARIES = {
    "libboost1.74-dev": "BSL-1.0",
    "libbsd-dev": "BSD-3-Clause AND ISC AND MIT",
    "libedit-dev": "BSD-3-Clause",
    "libfmt-dev": "MIT",
    "libgcc-10-dev": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "liburing-dev": "LGPL-2.1-or-later OR MIT",
    "libmd-dev": "BSD-3-Clause AND ISC",
    "libncurses-dev": "MIT-open-group",
    "libpcre2-dev": "BSD-3-Clause",
    "libstdc++-12-dev": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libutf8proc-dev": "MIT AND Unicode-DFS-2015",
    "libxxhash-dev": "BSD-2-Clause",
    "nlohmann-json3-dev": "MIT",
    "pybind11-dev": "BSD-3-Clause",
}
# Opened at run time, interfaces of the system, or copyright files that others link to.
NOT_INSIDE = {
    "libc6",
    "libc6-dev",
    "libcrypt-dev",
    "libcurl4-openssl-dev",
    "libpython3.11-dev",
    "libpython3.13-dev",
    "libpython3.14-dev",
    "libpython3.9-dev",
    "linux-libc-dev",
    "gcc-10-base",
    "gcc-12-base",
    "libtinfo6",
}
# Boost's copyright file has 2 MB on all of its libraries; in programs are Asio and Beast.
WITHOUT_NOTICE = {"BSL-1.0": "The Boost Software License 1.0 asks for no notice in machine code."}
LICENCE_FILES = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|UNLICENSE|NOTICE)", re.IGNORECASE)


def cargo(*arguments):
    program = shutil.which("cargo") or os.path.expanduser("~/.cargo/bin/cargo")
    return subprocess.run(
        [program, *arguments, "--locked", "--offline"],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        cwd=os.path.join(SOURCE, "rust"),
    ).stdout


def crates():
    """(name, version, licence, checksum, folder) of the crates that are linked."""
    tree = cargo(
        "tree",
        "--features",
        "constraints",
        "-e",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "-f",
        "{p}",
    )
    linked = {tuple(line.split()[:2]) for line in tree.splitlines()}
    with open(os.path.join(SOURCE, "rust/Cargo.lock"), encoding="utf-8") as file:
        lock = file.read()
    checksums = {
        (name, version): checksum
        for name, version, checksum in re.findall(
            r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(\w+)"', lock
        )
    }
    packages = json.loads(cargo("metadata", "--format-version", "1", "--features", "constraints"))[
        "packages"
    ]
    found = []
    for package in packages:
        key = (package["name"], package["version"])
        if (key[0], "v" + key[1]) in linked and key in checksums:
            licence = package["license"].replace("/", " OR ")
            found.append((*key, licence, checksums[key], os.path.dirname(package["manifest_path"])))
    return sorted(found)


def page_packages():
    """(name, version, licence, SHA-512, folder) of what the page has inside; none without one."""
    listed = os.path.join(SOURCE, "build/web/packages.txt")
    if not os.path.exists(listed):
        return []
    with open(os.path.join(SOURCE, "web/package-lock.json"), encoding="utf-8") as file:
        lock = json.load(file)["packages"]
    found = []
    with open(listed, encoding="utf-8") as file:
        for line in file:
            name, version, licence = line.split(maxsplit=2)
            entry = lock[f"node_modules/{name}"]
            if entry["version"] != version:
                sys.exit(f"inventory.py: {listed}: {name} {version}, locked {entry['version']}")
            checksum = base64.b64decode(entry["integrity"].removeprefix("sha512-")).hex()
            folder = os.path.join(SOURCE, "web/node_modules", name)
            found.append((name, version, licence.strip(), checksum, folder))
    return sorted(found)


def cuda_runtime(library):
    """(wheel, version, licence, SHA-256, licence file) of the runtime, a list of one; none: []."""
    if not library:
        return []
    site = os.path.join(os.path.dirname(os.path.abspath(library)), "../../..")
    wheels = glob.glob(os.path.join(site, "nvidia_cuda_runtime-*.dist-info"))
    if len(wheels) != 1:
        sys.exit(f"inventory.py: {library}: {len(wheels)} folders nvidia_cuda_runtime-*.dist-info "
                 "beside its wheel's, expected one (tools/install_cuda.sh)")
    version = os.path.basename(wheels[0]).removesuffix(".dist-info").split("-")[1]
    with open(library, "rb") as file:
        checksum = hashlib.sha256(file.read()).hexdigest()
    notice = os.path.join(wheels[0], "licenses/License.txt")
    return [("nvidia-cuda-runtime", version, "LicenseRef-NVIDIA-Proprietary", checksum, notice)]


def libraries(root):
    """(package, version, source, licence, copyright file) of the C++ libraries that are linked."""
    found = []
    with open(os.path.join(root, "versions"), encoding="utf-8") as file:
        for line in file:
            package, version, source = line.split()
            if package in NOT_INSIDE:
                continue
            if package not in LIBRARIES:
                sys.exit(f"inventory.py: {root}/versions lists {package}, LIBRARIES here does not")
            notice = os.path.join(root, "usr/share/doc", package, "copyright")
            found.append((package, version, source, LIBRARIES[package], notice))
    return sorted(found)


def sbom(version, architecture, crate_list, page_list, cuda_list, library_list):
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:{kind}/{name}@{number}",
            "name": name,
            "version": number,
            "purl": f"pkg:{kind}/{name}@{number}",
            "hashes": [{"alg": algorithm, "content": checksum}],
            "licenses": [{"expression": licence}],
        }
        for kind, algorithm, packages in (
            ("cargo", "SHA-256", crate_list),
            ("npm", "SHA-512", page_list),
            ("pypi", "SHA-256", cuda_list),
        )
        for name, number, licence, checksum, _ in packages
    ]
    components += [
        {
            "type": "library",
            "bom-ref": f"pkg:deb/debian/{package}@{number}",
            "name": source,
            "version": number,
            "purl": f"pkg:deb/debian/{package}@{number}?arch={architecture}",
            "licenses": [{"expression": licence}],
        }
        for package, number, source, licence, _ in library_list
    ]
    itself = f"pkg:generic/moeflux@{version}"
    inside = [component["bom-ref"] for component in components]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, itself + ' '.join(inside))}",
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": itself,
                "name": "moeflux",
                "version": version,
                "purl": itself,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": [{"ref": itself, "dependsOn": inside}],
    }


def licence_texts(folder):
    """The licence files of a crate; fails where it brings none."""
    found = [
        os.path.join(folder, name)
        for name in sorted(os.listdir(folder))
        if LICENCE_FILES.match(name) and os.path.isfile(os.path.join(folder, name))
    ]
    return found or sys.exit(f"inventory.py: no licence file in {folder}")


def write_licences(path, package_list, cuda_list, library_list):
    texts = [("moeflux", "Apache-2.0", [os.path.join(SOURCE, "LICENSE")])]
    texts += [
        (f"{name} {version}", licence, licence_texts(folder))
        for name, version, licence, _, folder in package_list
    ]
    texts += [
        (f"{name} {version}", licence, [notice]) for name, version, licence, _, notice in cuda_list
    ]
    texts += [
        (f"{source} {version}", licence, [notice] if licence not in WITHOUT_NOTICE else [])
        for _, version, source, licence, notice in library_list
    ]
    seen = {}  # text -> the first name that has it: most crates share theirs
    with open(path, "w", encoding="utf-8") as out:
        out.write("moeflux contains the software below, compiled.\n")
        out.write("Rust's standard library is MIT OR Apache-2.0.\n")
        for name, licence, files in texts:
            out.write(f"\n{'=' * 80}\n{name}: {licence}\n")
            if not files:
                out.write(f"{WITHOUT_NOTICE[licence]}\n")
            for file in files:
                with open(file, encoding="utf-8", errors="replace") as text_file:
                    text = text_file.read().strip()
                out.write(f"{'-' * 80}\n")
                out.write(f"As {seen[text]}.\n" if text in seen else text + "\n")
                seen.setdefault(text, f"{os.path.basename(file)} of {name}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("version", "root", "sbom", "licences"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--architecture", default="amd64", help="Debian's word for that of ROOT")
    parser.add_argument("--cuda", metavar="LIBRARY", help="the static runtime that is linked")
    options = parser.parse_args()
    crate_list, page_list, library_list = crates(), page_packages(), libraries(options.root)
    cuda_list = cuda_runtime(options.cuda)
    lists = (crate_list, page_list, cuda_list, library_list)
    with open(options.sbom, "w", encoding="utf-8") as file:
        json.dump(sbom(options.version, options.architecture, *lists), file, indent=1)
        file.write("\n")
    write_licences(options.licences, crate_list + page_list, cuda_list, library_list)
    print(f"inventory.py: {len(crate_list)} crates, {len(page_list)} packages of the page, "
          f"{len(library_list)} C++ libraries{', the runtime of CUDA' if cuda_list else ''}")


if __name__ == "__main__":
    main()
