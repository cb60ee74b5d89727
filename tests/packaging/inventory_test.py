#!/usr/bin/env python3
"""The list of everything inside a release names each crate and library with version, licence, text.

It is the same each time, and is not written where something is unknown.

    tests/packaging/inventory_test.py
"""

import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
INVENTORY = os.path.join(SOURCE, "tools/release/inventory.py")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def inventory(root, folder, *options):
    sbom, licences = os.path.join(folder, "sbom.json"), os.path.join(folder, "licences.txt")
    done = subprocess.run(
        [
            sys.executable,
            INVENTORY,
            "--version",
            "9.8.7",
            "--root",
            root,
            "--sbom",
            sbom,
            "--licences",
            licences,
            *options,
        ],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.returncode, done.stdout, sbom, licences


def check(condition, *words):
    if not condition:
        sys.exit(f"inventory_test: {words}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "root")
        write(os.path.join(root, "versions"), "libfmt-dev 9.1.0-1 fmtlib\nlibc6 2.31-1 glibc\n")
        code, output, *_ = inventory(root, folder)
        check(code != 0 and "libfmt-dev/copyright" in output, output)  # no licence, no release
        write(
            os.path.join(root, "usr/share/doc/libfmt-dev/copyright"), "The words of fmt's licence\n"
        )
        code, output, sbom, licences = inventory(root, folder)
        check(code == 0, output)
        first = read(sbom), read(licences)

        document = json.loads(first[0])
        check(document["bomFormat"] == "CycloneDX" and document["specVersion"] == "1.5", document)
        check(
            re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", document["serialNumber"]),
            document["serialNumber"],
        )
        check(document["metadata"]["component"]["version"] == "9.8.7", document["metadata"])
        components = {component["bom-ref"]: component for component in document["components"]}
        check(len(components) == len(document["components"]), "a reference is there twice")
        check(
            set(document["dependencies"][0]["dependsOn"]) == set(components),
            document["dependencies"],
        )
        check("pkg:deb/debian/libfmt-dev@9.1.0-1" in components, sorted(components))
        check(not any("libc6" in reference for reference in components), sorted(components))
        for component in components.values():
            check(component["version"] and component["licenses"][0]["expression"], component)

        # Checksums are those of the lock file; LICENSES.md has a row for each crate.
        lock = read(os.path.join(SOURCE, "rust/Cargo.lock"))
        table = read(os.path.join(SOURCE, "rust/LICENSES.md")).split("Rust's standard library")[0]
        crates = [
            component
            for reference, component in components.items()
            if reference.startswith("pkg:cargo/")
        ]
        check(len(crates) > 10, sorted(components))
        for crate in crates:
            name, version = crate["name"], crate["version"]
            entry = f'name = "{name}"\nversion = "{version}"\n'
            check(entry in lock, crate)
            block = lock.split(entry)[1].split("[[")[0]
            check(crate["hashes"][0]["content"] in block, crate)
            check(re.search(rf"\b{name}\b", table), f"rust/LICENSES.md has no row of {name}")
            check(f"\n{name} {version}: " in first[1], f"no licence of {name}")
        # The page's packages, where it was built.
        listed = os.path.join(SOURCE, "build/web/packages.txt")
        for line in read(listed).splitlines() if os.path.exists(listed) else []:
            name, version, _ = line.split(maxsplit=2)
            check(f"pkg:npm/{name}@{version}" in components, name, sorted(components))
            check(f"\n{name} {version}: " in first[1], f"no licence of {name}")
        check("The words of fmt's licence" in first[1], "no licence of fmt")

        check(
            inventory(root, folder)[0] == 0 and (read(sbom), read(licences)) == first,
            "not the same twice",
        )
        # CUDA's runtime comes of a wheel that has its licence; any other is refused.
        runtime = os.path.join(folder, "site/nvidia/cu13/lib/libcudart_static.a")
        write(runtime, "code\n")
        code, output, *_ = inventory(root, folder, "--cuda", runtime)
        check(code != 0 and "nvidia_cuda_runtime" in output, output)
        wheel = os.path.join(folder, "site/nvidia_cuda_runtime-13.0.96.dist-info")
        write(os.path.join(wheel, "licenses/License.txt"), "The words of NVIDIA's licence\n")
        code, output, *_ = inventory(root, folder, "--cuda", runtime)
        check(code == 0, output)
        found = json.loads(read(sbom))["components"]
        check([one["hashes"][0]["alg"] for one in found
               if one["bom-ref"] == "pkg:pypi/nvidia-cuda-runtime@13.0.96"] == ["SHA-256"], found)
        check("The words of NVIDIA's licence" in read(licences), "no licence of CUDA's runtime")
        write(os.path.join(root, "versions"), "libstranger-dev 1 stranger\n")
        code, output, *_ = inventory(root, folder)
        check(code != 0 and "libstranger-dev" in output, output)
    print(f"inventory_test: {len(crates)} crates and a library listed")


if __name__ == "__main__":
    main()
