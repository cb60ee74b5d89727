"""tools/install_deps.sh against a fake system: it installs what is missing and nothing else."""

import os
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SCRIPT = os.path.join(ROOT, "tools", "install_deps.sh")
# The tools of the real system that the script may use; everything else is faked or absent.
REAL_TOOLS = ("sh", "cat", "mktemp", "rm", "env")


class InstallDepsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.calls = os.path.join(self.folder.name, "calls")
        self.fakes = os.path.join(self.folder.name, "bin")
        os.mkdir(self.fakes)
        for tool in REAL_TOOLS:
            for folder in ("/usr/bin", "/bin"):
                if os.path.exists(os.path.join(folder, tool)):
                    os.symlink(os.path.join(folder, tool), os.path.join(self.fakes, tool))
                    break
        self.fake("uname", "echo Linux")
        self.fake("id", "echo 0")
        self.fake("apt-get", f'echo "apt-get $*" >> "{self.calls}"')
        self.fake("apt-cache", 'echo "  Candidate: 1.0"')
        self.installed()

    def fake(self, name, body):
        path = os.path.join(self.fakes, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{body}\n")
        os.chmod(path, 0o755)

    def installed(self, missing=()):
        """dpkg-query that knows every package asked for but those missing."""
        words = "|".join(missing) or "none-at-all"
        self.fake("dpkg-query", f"""shift 3; status=0
for package; do case $package in {words}) status=1 ;;
  *) printf 'installed:%s ' "$package" ;; esac; done; exit $status""")

    def run_script(self, *sets):
        return subprocess.run([SCRIPT, *sets], env={"PATH": self.fakes}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def apt_calls(self):
        if not os.path.exists(self.calls):
            return []
        with open(self.calls, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_nothing_missing_says_and_does_nothing(self):
        result = self.run_script("test", "check")
        self.assertEqual((0, "", ""), (result.returncode, result.stdout, result.stderr))
        self.assertEqual([], self.apt_calls())

    def test_root_installs_exactly_what_is_missing(self):
        self.installed(missing=("libfmt-dev", "libgtest-dev"))
        result = self.run_script("test")
        self.assertEqual(0, result.returncode, result.stderr)
        update, install = self.apt_calls()
        self.assertIn(" update", update)
        self.assertTrue(install.endswith("-recommends libfmt-dev libgtest-dev"), install)

    def test_running_needs_no_test_packages(self):
        self.installed(missing=("libgtest-dev", "libbenchmark-dev", "clang-format-14"))
        self.assertEqual(0, self.run_script().returncode)
        self.assertEqual([], self.apt_calls())

    def test_what_reads_the_metal_text_comes_with_tests_and_checks(self):
        self.installed(missing=("clang",))
        for name in ("test", "check"):
            self.assertEqual(0, self.run_script(name).returncode)
            self.assertTrue(self.apt_calls()[-1].endswith(" clang"), name)

    def test_sudo_without_a_password_is_used(self):
        self.installed(missing=("libfmt-dev",))
        self.fake("id", "echo 1000")
        self.fake("sudo", 'shift; exec "$@"')
        self.fake("true", "exit 0")
        self.assertEqual(0, self.run_script("run").returncode)
        self.assertEqual(2, len(self.apt_calls()))

    def test_without_rights_the_command_is_printed(self):
        self.installed(missing=("libfmt-dev", "ninja-build"))
        self.fake("id", "echo 1000")
        result = self.run_script("run")
        self.assertEqual(1, result.returncode)
        self.assertIn("sudo apt-get update && sudo apt-get install -y", result.stderr)
        self.assertIn(" ninja-build libfmt-dev\n", result.stderr)
        self.assertEqual([], self.apt_calls())

    def test_a_failing_apt_shows_its_words_and_fails(self):
        self.installed(missing=("libfmt-dev",))
        self.fake("apt-get", "echo 'no space left'; exit 100")
        result = self.run_script("run")
        self.assertEqual(1, result.returncode)
        self.assertIn("no space left", result.stderr)

    def test_optional_packages_nobody_carries_are_skipped_aloud(self):
        self.installed(missing=("clang-format-14",))
        self.fake("apt-cache", 'echo "  Candidate: (none)"')
        result = self.run_script("check")
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertIn("clang-format-14", result.stderr)
        self.assertEqual(1, len(self.apt_calls()))  # the update

    def test_macos_prints_the_command_of_brew(self):
        self.fake("uname", "echo Darwin")
        result = self.run_script("run")
        if not os.path.isdir("/opt/homebrew/opt") and not os.path.isdir("/usr/local/opt"):
            self.assertEqual(1, result.returncode)
            self.assertIn("brew install cmake ninja", result.stderr)
        self.assertEqual([], self.apt_calls())

    def test_an_unknown_set_is_refused(self):
        result = self.run_script("everything")
        self.assertEqual(2, result.returncode)
        self.assertIn("'everything'", result.stderr)


if __name__ == "__main__":
    unittest.main()
