#!/usr/bin/env python3
"""Runs a command in a memory cgroup (v1 or v2) and reports what it took.

    limited_memory.py --memory 8G [--drop-caches] [--report FILE] -- moeflux bench -m DIR ...

Needs the right to make a cgroup (root, or a delegated one given with --parent). Swap is not
allowed to the group. The report is one JSON object: peak memory, major faults, OOM kills, bytes
read from block devices, wall and CPU seconds, the command and its exit status. It goes to standard
error, or to --report FILE; the command's own output is left alone.
"""
import argparse
import json
import os
import subprocess
import sys
import time

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text):
    """Bytes of "8G", "512M", "1000"."""
    number = text.rstrip("KMGT")
    return int(float(number) * UNITS[text[len(number):]])


def read(path, default=""):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return default


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(text))


def counters(path):
    """The "name value" lines of a cgroup file."""
    pairs = (line.split() for line in read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


class GroupV1:
    """A group of the memory controller's own hierarchy."""

    def __init__(self, parent, name, limit):
        self.path = os.path.join(parent, name)
        os.mkdir(self.path)
        write(os.path.join(self.path, "memory.limit_in_bytes"), limit)
        swap = os.path.join(self.path, "memory.memsw.limit_in_bytes")
        if os.path.exists(swap):
            write(swap, limit)

    def report(self):
        control = counters(os.path.join(self.path, "memory.oom_control"))
        stat = counters(os.path.join(self.path, "memory.stat"))
        return {
            "peak_bytes": int(read(os.path.join(self.path, "memory.max_usage_in_bytes"), "0")),
            "limit_hits": int(read(os.path.join(self.path, "memory.failcnt"), "0")),
            "oom_kills": control.get("oom_kill", 0),
            "page_faults_major": stat.get("total_pgmajfault", 0),
            "swap_bytes": stat.get("total_swap", 0),
        }


class GroupV2:
    """A group of the unified hierarchy."""

    def __init__(self, parent, name, limit):
        controllers = os.path.join(parent, "cgroup.subtree_control")
        if "memory" not in read(controllers).split():
            write(controllers, "+memory")
        self.path = os.path.join(parent, name)
        os.mkdir(self.path)
        write(os.path.join(self.path, "memory.max"), limit)
        if os.path.exists(os.path.join(self.path, "memory.swap.max")):
            write(os.path.join(self.path, "memory.swap.max"), 0)

    def report(self):
        events = counters(os.path.join(self.path, "memory.events"))
        stat = counters(os.path.join(self.path, "memory.stat"))
        return {
            "peak_bytes": int(read(os.path.join(self.path, "memory.peak"), "0")),
            "limit_hits": events.get("max", 0),
            "oom_kills": events.get("oom_kill", 0),
            "page_faults_major": stat.get("pgmajfault", 0),
            "swap_bytes": int(read(os.path.join(self.path, "memory.swap.current"), "0")),
        }


def make_group(parent, limit):
    name = f"moeflux-{os.getpid()}"
    v1 = parent or "/sys/fs/cgroup/memory"
    if os.path.exists(os.path.join(v1, "memory.limit_in_bytes")):
        return GroupV1(v1, name, limit)
    return GroupV2(parent or "/sys/fs/cgroup", name, limit)


def drop_caches():
    os.sync()
    write("/proc/sys/vm/drop_caches", 3)


def run(command, group):
    """Exit status, seconds and resource usage of `command` inside `group`."""
    begin = time.monotonic()
    child = subprocess.Popen(
        command, preexec_fn=lambda: write(os.path.join(group.path, "cgroup.procs"), os.getpid()))
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - begin
    return os.waitstatus_to_exitcode(status), seconds, usage


def measure(command, limit, parent=None, drop=False):
    """Runs `command` in a group of its own that ends with it; the report, as printed."""
    group = make_group(parent, limit)
    try:
        if drop:
            drop_caches()
        status, seconds, usage = run(command, group)
        return {
            "command": command,
            "exit_status": status,
            "limit_bytes": limit,
            **group.report(),
            "max_rss_bytes": usage.ru_maxrss * 1024,
            "read_bytes": usage.ru_inblock * 512,
            "process_page_faults_major": usage.ru_majflt,
            "user_seconds": usage.ru_utime,
            "system_seconds": usage.ru_stime,
            "wall_seconds": seconds,
        }
    finally:
        os.rmdir(group.path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--memory", required=True, type=parse_size, help="limit, e.g. 8G")
    parser.add_argument("--parent", help="folder of the cgroup to make the new one in")
    parser.add_argument("--drop-caches", action="store_true", help="empty the page cache first")
    parser.add_argument("--report", help="file for the JSON report")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("no command given after --")
    report = measure(command, args.memory, args.parent, args.drop_caches)
    text = json.dumps(report, indent=1) + "\n"
    if args.report:
        write(args.report, text)
    else:
        sys.stderr.write(text)
    return report["exit_status"]


if __name__ == "__main__":
    sys.exit(main())
