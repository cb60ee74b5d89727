#!/usr/bin/env python3
"""The packages of a release work in clean roots of Debian 11 to 14.

    tests/packaging/roots_test.py PACKAGES [SUITE...]

PACKAGES is the folder that `make release` fills. The archive, the Debian packages and the wheel for
that system's interpreter have a copy of each root to themselves. Their programs tell a story,
answer openai's client and give a browser the page. Python's modules tell it too, also those of
wheels for other interpreters of this system. The steps of the Containerfile run in a root of Debian
12. auditwheel, lintian, systemd-analyze and ruby check what they know. Packing once more gives the
same bytes. The archive for 64-bit Arm runs in an emulator. Programs and libraries of archives are
hardened. mmdebstrap makes the roots, or debootstrap, which takes longer. Needs root, and a network
for the first run, wheels and the steps of the Containerfile.
"""

import contextlib
import glob
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PACKAGES = os.path.abspath(sys.argv[1])
SUITES = sys.argv[2:] or ["bullseye", "bookworm", "trixie", "forky"]
SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
ROOTS = os.path.join(SOURCE, "build/roots")
MIRROR = "http://deb.debian.org/debian"
STORY = ["run", "-q", "-n", "24", "--temp", "0", "Once upon a time"]
START_SECONDS = 300
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
}


def check(condition, *words):
    if not condition:
        sys.exit("roots_test: " + " ".join(str(word) for word in words))


def run(command, **options):
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    check(done.returncode == 0, shlex.join(command), done.returncode, done.stdout, done.stderr)
    return done.stdout


def package(pattern):
    found = glob.glob(os.path.join(PACKAGES, pattern))
    check(len(found) == 1, f"{PACKAGES} has {len(found)} files {pattern}, expected one")
    return found[0]


def inside(root, command):
    """The command for the root, with a /proc that ends with it."""
    script = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    return ["unshare", "--mount", "sh", "-c", script, root, *command]


def in_root(root, *command):
    return run(inside(root, command), env=ENVIRONMENT)


def make_root(folder, suite, packages):
    """Makes the smallest root of the suite that has the packages."""
    options = ["--variant=minbase", *(["--include=" + ",".join(packages)] if packages else [])]
    if shutil.which("mmdebstrap"):
        # Lists of a suite in the making expire within days, mirrors or clocks may be behind.
        options += ["--mode=root", '--aptopt=Acquire::Check-Valid-Until "no"']
        run(["mmdebstrap", *options, suite, folder, MIRROR])
    else:  # Scripts of later suites are links to that one.
        run(["debootstrap", *options, suite, folder, MIRROR, "/usr/share/debootstrap/scripts/sid"])


@contextlib.contextmanager
def clean_root(suite, *packages):
    """A copy of a root that was made once."""
    original = os.path.join(ROOTS, "-".join([suite, *packages]))
    if not os.path.exists(original + ".complete"):
        shutil.rmtree(original, ignore_errors=True)
        make_root(original, suite, packages)
        open(original + ".complete", "w").close()
    with tempfile.TemporaryDirectory(dir=ROOTS, prefix=suite + "-") as folder:
        root = os.path.join(folder, "root")
        run(["cp", "-a", "--reflink=auto", original, root])
        yield root


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def python_with(requirement):
    """An interpreter that has a package of PyPI."""
    folder = os.path.join(ROOTS, requirement)
    python = os.path.join(folder, "bin/python")
    if not os.path.exists(python + ".complete"):
        run([sys.executable, "-m", "venv", folder])
        run([python, "-m", "pip", "install", "--quiet", requirement])
        open(python + ".complete", "w").close()
    return python


ASK = """
import openai, sys
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", timeout=120)
answer = client.chat.completions.create(model="fable-20m", max_tokens=8,
    messages=[{"role": "user", "content": "Tell me a story"}])
print(answer.choices[0].message.content)
"""


def ask(address):
    with open(os.path.join(SOURCE, "tests/clients/requirements.txt"), encoding="utf-8") as file:
        client = re.search("^openai==.*$", file.read(), re.MULTILINE).group()
    return run([python_with(client), "-c", ASK, address])


def look_at_page(address):
    """A browser gets the page, and the script that it names."""

    def get(path, kind):
        request = urllib.request.Request(address + path, headers={"Accept": "text/html"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = answer.headers["Content-Type"]
            check(found.startswith(kind), f"{address}{path} is {found}, expected {kind}")
            return gzip.decompress(answer.read()).decode()

    page = get("/", "text/html")
    script = re.search(r'src="(/page/app-\w+\.js)"', page)
    check(script, f"{address}/ names no script:", page)
    get(script.group(1), "text/javascript")


def answers(command, port, healthy=None):
    """The answer of a server that the command starts at the port; it ends before this returns."""
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT)
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(address + "/health", timeout=5).close()
                    break
                log.seek(0)
                check(server.poll() is None, shlex.join(command), log.read())
                check(time.monotonic() < deadline, "no /health from", shlex.join(command))
                time.sleep(0.2)
            if healthy:
                healthy()
            look_at_page(address)
            text = ask(address).strip()
            check(text, "an empty answer of", shlex.join(command))
            return text
        finally:
            server.terminate()
            server.wait(60)


def tells(stories, what, root, *program):
    """The program in the root tells the story that all tell, and serves."""
    stories[what] = in_root(root, *program, *STORY)
    port = free_port()
    answer = answers(inside(root, [*program, "serve", "--port", str(port)]), port)
    print(f"{what}: {stories[what].strip()[:50]!r}, serve: {answer[:40]!r}", flush=True)


def hardened(tree):
    """Fails where the program or the library of an unpacked archive lacks a protection."""
    test = os.path.join(SOURCE, "tests/packaging/hardening_test.py")
    library = os.path.realpath(os.path.join(tree, "lib/libmoeflux.so"))
    run([sys.executable, test, os.path.join(tree, "bin/moeflux"), library])


def archive_in(root):
    run(["tar", "-xzf", package("moeflux-*-linux-x86_64.tar.gz"), "-C", os.path.join(root, "opt")])
    tree = glob.glob(os.path.join(root, "opt/moeflux-*"))[0]
    hardened(tree)
    return "/opt/" + os.path.basename(tree)


def arm64_archive(stories):
    """The archive for 64-bit Arm in an emulator, over the C library of Debian 11."""
    emulator = shutil.which("qemu-aarch64")
    library = os.path.join(SOURCE, "build/release-root-arm64")
    found = glob.glob(os.path.join(PACKAGES, "moeflux-*-linux-aarch64.tar.gz"))
    if not emulator or not found:
        print("skipped: the archive for 64-bit Arm needs qemu-aarch64 and Rust's library for it")
        return
    with tempfile.TemporaryDirectory(dir=ROOTS) as folder:
        run(["tar", "-xzf", found[0], "-C", folder, "--strip-components", "1"])
        hardened(folder)
        command = [emulator, "-L", library, os.path.join(folder, "bin/moeflux")]
        # Other processors have other kernels; these bits are those of all.
        stories["64-bit Arm"] = run([*command, *STORY, "--cpu-isa", "portable"], env=ENVIRONMENT)
        port = free_port()
        answer = answers([*command, "serve", "--port", str(port)], port)
        story = stories["64-bit Arm"].strip()
        print(f"64-bit Arm: {story[:50]!r}, serve: {answer[:40]!r}", flush=True)


def debian_packages_in(root):
    names = []
    for file in sorted(glob.glob(os.path.join(PACKAGES, "*.deb"))):
        shutil.copy(file, os.path.join(root, "tmp"))
        names.append("/tmp/" + os.path.basename(file))
    check(len(names) == 3, "expected three Debian packages,", names)
    in_root(root, "dpkg", "--install", *names)
    check("libmoeflux.so" in in_root(root, "ldconfig", "-p"), "ldconfig lists no libmoeflux")
    with tempfile.TemporaryDirectory() as folder:
        unit = os.path.join(folder, "moeflux.service")
        with open(os.path.join(root, "usr/lib/systemd/system/moeflux.service")) as file:
            text = file.read()
        with open(unit, "w") as file:
            file.write(text.replace("/usr/bin/moeflux", root + "/usr/bin/moeflux"))
        run(["systemd-analyze", "verify", "--man=no", unit])
        # 0 is least exposed, 10 most; 1.4 when it was written.
        run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit])


# The tag of each suite's interpreter.
PYTHONS = {"bullseye": "cp39", "bookworm": "cp311", "trixie": "cp313", "forky": "cp314"}
WHEEL_STORY = """
import moeflux, sys
sequence = moeflux.Model(sys.argv[1], context_length=512).sequence()
sequence.set_sampler(temperature=0)
print("".join(sequence.stream("Once upon a time", max_tokens=24)))
"""


def numpy_into(folder):
    """The name of a wheel of NumPy for CPython 3.9 that PyPI gave."""
    for_debian_11 = ["--python-version", "3.9", "--platform", "manylinux2014_x86_64"]
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    run([*download, *for_debian_11, "--dest", folder, "numpy>=1.21"])
    return os.path.basename(glob.glob(os.path.join(folder, "numpy-*.whl"))[0])


@contextlib.contextmanager
def root_with_wheel(suite):
    """A root with the wheel, NumPy and nothing of other packages."""
    old = suite == "bullseye"  # NumPy 1.19 is older than the wheel asks for, pip than an option
    with clean_root(suite, "python3-pip", *([] if old else ["python3-numpy"])) as root:
        wheel = package(f"moeflux-*-{PYTHONS[suite]}-*.whl")
        shutil.copy(wheel, os.path.join(root, "tmp"))
        wheels = ["/tmp/" + os.path.basename(wheel)]
        if old:
            wheels.append("/tmp/" + numpy_into(os.path.join(root, "tmp")))
        options = ["--no-index", *([] if old else ["--break-system-packages"])]
        in_root(root, "pip", "install", *options, *wheels)
        yield root


def wheels_here(stories, model):
    """Wheels that no suite's interpreter is for, in those of pyenv on this system."""
    for wheel in glob.glob(os.path.join(PACKAGES, "moeflux-*.whl")):
        tag = os.path.basename(wheel).split("-")[2]
        if tag in PYTHONS.values():
            continue
        version = f"3.{tag.removeprefix('cp3')}"
        pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
        found = glob.glob(os.path.join(pyenv, f"versions/{version}.*/bin/python3"))
        if not found:
            print(f"skipped: no CPython {version} for {os.path.basename(wheel)}")
            continue
        with tempfile.TemporaryDirectory(dir=ROOTS) as folder:
            run([found[0], "-m", "venv", folder])
            python = os.path.join(folder, "bin/python")
            run([python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", wheel])
            stories[version] = run([python, "-c", WHEEL_STORY, model])
            print(f"CPython {version}, wheel: {stories[version].strip()[:50]!r}", flush=True)


def containerfile():
    """(RUN commands, the health check's command) of its first stage."""
    with open(os.path.join(SOURCE, "tools/release/Containerfile"), encoding="utf-8") as file:
        lines = file.read().replace("\\\n", " ").split("\nFROM")[1].splitlines()
    steps = [line.split(None, 1)[1] for line in lines if line.startswith("RUN ")]
    health = next(line for line in lines if line.startswith("HEALTHCHECK "))
    return steps, json.loads(health[health.index("[") :])


def container_steps(root):
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc/resolv.conf"))
    steps, health = containerfile()
    for number, step in enumerate(steps):
        if number == 1:  # ADD comes before it
            archive_in(root)
        in_root(root, "sh", "-c", step.replace("apt-get", "apt-get -qq -o APT::Sandbox::User=root"))
    serve = "cd /var/lib/moeflux && MOEFLUX_HOST=0.0.0.0 MOEFLUX_PORT=8080 MOEFLUX_API_KEY=none"
    command = inside(root, ["su", "moeflux", "-s", "/bin/sh", "-c", serve + " exec moeflux serve"])
    answer = answers(command, 8080, lambda: in_root(root, *health))
    print(f"steps of the Containerfile: {answer[:40]!r}", flush=True)


def check_files():
    with open(os.path.join(PACKAGES, "SHA256SUMS"), encoding="utf-8") as file:
        sums = dict(reversed(line.split()) for line in file)
    names = set(os.listdir(PACKAGES)) - {"SHA256SUMS"}
    check(set(sums) == names, "SHA256SUMS lists", sorted(sums), "of", sorted(names))
    for name, expected in sums.items():
        with open(os.path.join(PACKAGES, name), "rb") as file:
            check(hashlib.sha256(file.read()).hexdigest() == expected, name, "has another checksum")
    auditwheel = [python_with("auditwheel==6.8.2"), "-m", "auditwheel"]
    for wheel in glob.glob(os.path.join(PACKAGES, "*.whl")):
        told = run([*auditwheel, "show", wheel])
        tag = re.search(r'following platform tag: *"manylinux_2_(\d+)_', " ".join(told.split()))
        check(tag and int(tag.group(1)) <= 31, wheel, told)
    debs = sorted(glob.glob(os.path.join(PACKAGES, "*.deb")))
    found = run(["lintian", "--allow-root", "--fail-on", "error,warning", *debs])
    check(not re.search("^[EW]:", found, re.MULTILINE), found)
    run(["ruby", "-c", package("moeflux.rb")])


def pack_again():
    """The same build packed twice is the same files."""
    build = os.path.join(SOURCE, "build/package")
    if not os.path.exists(os.path.join(build, "bin/moeflux")):
        print(f"skipped: packing again needs the build in {build}")
        return
    with tempfile.TemporaryDirectory(dir=ROOTS) as folder:
        again = os.path.join(folder, "packages")
        run([os.path.join(SOURCE, "tools/release/pack.sh"), build, again])
        sums = [open(os.path.join(at, "SHA256SUMS")).read() for at in (PACKAGES, again)]
        check(sums[0] == sums[1], "packing again gives other files:", *sums)


def driver(program):
    """Without a driver, and with an old one, the program computes on the CPU and says so."""
    if "this build has no CUDA" in run([program, "devices"], env=ENVIRONMENT):
        print("skipped: drivers matter to packages with CUDA alone")
        return
    test = os.path.join(SOURCE, "tests/packaging/driver_test.sh")
    print(run(["sh", test, program, "c++"]).strip(), flush=True)


def installations(suite, stories, portable, wheels):
    """Each package in a root of its own, so that none has what another brought."""
    with clean_root(suite) as root:
        program = archive_in(root) + "/bin/moeflux"
        tells(stories, f"{suite}, archive", root, program)
        portable[suite] = in_root(root, program, *STORY, "--cpu-isa", "portable")
        if suite == SUITES[0]:
            driver(root + program)
    with clean_root(suite) as root:
        debian_packages_in(root)
        tells(stories, f"{suite}, Debian packages", root, "/usr/bin/moeflux")
    with root_with_wheel(suite) as root:
        tells(stories, f"{suite}, wheel", root, "/usr/local/bin/moeflux")
        model = "/usr/local/share/moeflux/models/fable-20m"
        wheels[suite] = in_root(root, "python3", "-c", WHEEL_STORY, model)
    if suite == "bookworm":
        with clean_root(suite) as root:
            container_steps(root)


def main():
    check(os.geteuid() == 0, "roots are made and entered by root alone")
    for tools in ("mmdebstrap debootstrap", "unshare", "lintian", "ruby", "systemd-analyze"):
        there = any(shutil.which(tool) for tool in tools.split())
        check(there, "no", tools.replace(" ", " or "), "(tools/install_deps.sh release)")
    os.makedirs(ROOTS, exist_ok=True)
    check_files()
    pack_again()
    stories, portable, wheels = {}, {}, {}
    arm64_archive(portable)
    wheels_here(wheels, os.path.join(SOURCE, "models/fable-20m"))
    for suite in SUITES:
        installations(suite, stories, portable, wheels)
    for told in (stories, portable, wheels):
        check(all(told.values()), "an installation tells nothing:", told)
        check(len(set(told.values())) == 1, "the stories differ:", told)
    print(f"roots_test: {len(stories)} installations tell one story")


if __name__ == "__main__":
    main()
