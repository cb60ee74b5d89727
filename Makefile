# A thin face over the CMake presets: `make run`, `make test`, `make help`.
#
# `run` and `test` share build/release. `run` configures it without tests if it is not there yet, so
# that a user needs no test packages; `test` turns MOEFLUX_TESTS on in the same folder and it stays
# on. The option adds targets and changes no compiler flag, so neither makes the other rebuild
# anything, and `run` asks ninja for the one program only.

# Exported and read by the shell, so that quotes in a prompt stay what they are.
export PROMPT ?= Once upon a time
ARGS ?=
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 30
# How long each soak test takes under TSan and in test-all.
SOAK_SECONDS ?= 30
# The conformance tests that test-arm64 runs; a pattern of gtest.
ARM64_CASES ?= *
# How long one case may take.
CASE_SECONDS ?= 600
# The preset that build-cuda adds CUDA to. cuda has its own folder; release, where it is built,
# compiles the least.
CUDA_PRESET ?= cuda
# The programs of tests that test-asan builds and runs: golden, kernels, engine, service, program or
# fuzz; without it, all.
GROUP ?=
# For example CMAKE_FLAGS=-DMOEFLUX_WERROR=ON.
CMAKE_FLAGS ?=
CTEST_FLAGS ?=

JOBS := $(shell getconf _NPROCESSORS_ONLN)
MOEFLUX := build/release/bin/moeflux
# Tests in programs that start threads which start none themselves.
ONE_THREAD := ^fuzz_replay_|/OutOfMemoryTest\.|ADeviceThatReadsTheBestLogitsBack
# Sanitizers of g++ 12 and clang 14 cannot place their shadow under the wide address randomisation
# of recent kernels; setarch -R turns it off for one process tree, where it is permitted.
UNRANDOMISED = $$(setarch -R true 2>/dev/null && echo setarch -R)

# A folder keeps what it was first configured with: ccache, where there is one, for what several
# folders and pip compile alike.
CONFIGURE = CMAKE_CXX_COMPILER_LAUNCHER=$${CMAKE_CXX_COMPILER_LAUNCHER-$$(command -v ccache)} \
  cmake --preset

# Offline and where there are no crates yet, a build without chat templates is better than none.
CRATES = tools/fetch_crates.sh || echo "no Rust crates: chat templates are left out" >&2

.PHONY: deps web build build-cuda build-tests build-tsan run test cases test-asan test-tsan \
  test-arm64 test-all check ci-quick format lint fuzz bench release site install clean help \
  configure-release
.DEFAULT_GOAL := build

build: configure-release
	@cmake --build --preset release --target moeflux

# Everything but the program's own words goes to stderr.
run: configure-release
	@test -x $(MOEFLUX) || echo "building $(MOEFLUX): about 5 minutes on two cores" >&2
	@cmake --build --preset release --target moeflux >&2
	@$(MOEFLUX) run $(ARGS) "$$PROMPT"

# The page's packages, where Node.js is; a build without them has no page.
PAGE = tools/fetch_page.sh || echo "no packages of the page: it is left out" >&2

# A build needs the system's packages, for chat templates crates from Rust's registry, and for the
# page packages from npm's.
deps:
	@tools/install_deps.sh run
	@$(CRATES)
	@$(PAGE)

# The page, where its packages are; CMake embeds what is in build/web.
web: deps
	@test ! -d web/node_modules || node web/build.mjs >&2

configure-release: web
	@test -f build/release/build.ninja || \
	  $(CONFIGURE) release -DMOEFLUX_TESTS=OFF $(CMAKE_FLAGS) >&2

build-tests:
	@tools/install_deps.sh test
	@$(CRATES)
	@tools/fetch_page.sh --tests || echo "no packages of the page: its tests are skipped" >&2
	@$(MAKE) --no-print-directory web
	@tools/install_python.sh || \
	  echo "no wheels from PyPI: tests of pip install and huggingface_hub are skipped" >&2
	@$(CONFIGURE) release -DMOEFLUX_TESTS=ON -DMOEFLUX_CASE_SECONDS=$(CASE_SECONDS) $(CMAKE_FLAGS)
	@cmake --build --preset release

# Some cases wait for time, so one more runs than there are processors.
test: build-tests
	@ctest --preset release -j $$(($(JOBS) + 1)) --no-tests=error $(CTEST_FLAGS)

# How many cases each program has, for CI to notice when some are gone: .ci/cases, written anew.
cases: build-tests
	@.ci/cases.py --write

# The program and the tests that know CUDA; run them where there is a GPU.
build-cuda:
	@tools/install_deps.sh test
	@$(CRATES)
	@$(CONFIGURE) $(CUDA_PRESET) -DMOEFLUX_CUDA=ON $(CMAKE_FLAGS)
	@cmake --build --preset $(CUDA_PRESET) --target moeflux _core conformance_test golden_test

# The suite under AddressSanitizer and UndefinedBehaviorSanitizer, or one GROUP of it.
test-asan:
	@tools/install_deps.sh test
	@$(CRATES)
	@$(CONFIGURE) dev -DMOEFLUX_SANITIZED= $(CMAKE_FLAGS)
	@$(UNRANDOMISED) cmake --build --preset dev $(GROUP:%=--target %_tests)
	@$(UNRANDOMISED) ctest --preset dev -j $(JOBS) --no-tests=error $(GROUP:%=-L '^%$$') $(CTEST_FLAGS)

build-tsan:
	@tools/install_deps.sh test
	@$(CRATES)
	@$(CONFIGURE) tsan $(CMAKE_FLAGS)
	@$(UNRANDOMISED) cmake --build --preset tsan --target threaded_tests

# Runs the tests that start threads under ThreadSanitizer. CMake writes a *_NOT_BUILT test for each
# program that was left out, and script tests run no code of ours. Tests that ONE_THREAD matches
# start no thread; their emulated GPUs would take ten minutes a case here.
test-tsan: build-tsan
	@MOEFLUX_TEST_SOAK_SECONDS=$(SOAK_SECONDS) $(UNRANDOMISED) \
	  ctest --preset tsan -j $(JOBS) --no-tests=error \
	  -E '_NOT_BUILT$$|$(ONE_THREAD)' -LE script $(CTEST_FLAGS)

# Arm's kernels under emulation: devices of the CPU against their scalar definitions.
test-arm64:
	@tools/install_arm64.sh
	@$(CONFIGURE) arm64 $(CMAKE_FLAGS)
	@cmake --build --preset arm64 --target conformance_test
	@MOEFLUX_TEST_DEVICES=neon qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu \
	  -E LD_LIBRARY_PATH=build/arm64-root/usr/lib/aarch64-linux-gnu \
	  build/arm64/bin/conformance_test --gtest_filter='$(ARM64_CASES)'

# The folder of a model that talks, where there is one.
TALKING = $$(test -f build/talking/moe.gguf && echo $(CURDIR)/build/talking)

# All there is, for a night: long soaks and seeds, every case under the sanitizers.
test-all:
	@tools/talking_model.py || echo "no model that talks from PyPI: no text has to make sense" >&2
	@MOEFLUX_TEST_DIFFERENTIAL_SEEDS=10000 MOEFLUX_TEST_TIERED_DRAWS=2000 \
	  MOEFLUX_TEST_OUTPUT_MUTATIONS=100000 MOEFLUX_TEST_SERVE_REQUESTS=10000 \
	  MOEFLUX_TEST_KEPT_ROUNDS=50 MOEFLUX_TEST_PIP_COMPILES=1 MOEFLUX_TEST_PULL_SEEDS=1000 \
	  MOEFLUX_TEST_ALL_SPLITS=1 MOEFLUX_TEST_DRAFT_DRAWS=10000 \
	  MOEFLUX_TEST_TALKING=$(TALKING) \
	  MOEFLUX_TEST_SOAK_SECONDS=$(SOAK_SECONDS) \
	  $(MAKE) --no-print-directory test CASE_SECONDS=7200
	@tools/install_deps.sh browser
	@python3 -m venv build/clients/venv && build/clients/venv/bin/python -m pip install --quiet \
	  --disable-pip-version-check $$(grep '^openai==' tests/clients/requirements.txt)
	@MOEFLUX=$(MOEFLUX) MOEFLUX_TEST_TALKING=$(TALKING) \
	  node --test $(wildcard web/tests/browser/*_test.mjs)
	@tools/install_deps.sh proxies
	@tools/install_ray.sh
	@tests/ray/run.sh $(MOEFLUX)
	@$(MAKE) --no-print-directory test-asan
	@$(MAKE) --no-print-directory test-tsan
	@$(MAKE) --no-print-directory test-arm64
	@[ "$$(id -u)" = 0 ] && grep -q bookworm /etc/os-release || \
	  { echo "packages are untested: that needs root on Debian 12" >&2; exit 1; }
	@$(MAKE) --no-print-directory release
	@tests/packaging/roots_test.py build/packages

check:
	@tools/install_deps.sh check
	@tools/format.sh
	@python3 tools/check_layers.py
	@python3 tools/class_sizes.py
	@python3 tools/tidy.py
	@python3 tools/check_docs.py

# Checks a change with the build folders that are there: .ci/quick.py.
ci-quick:
	@tools/install_deps.sh test bench check
	@python3 .ci/quick.py

format:
	@tools/format.sh --fix

# clang-tidy over the release build; slow, and advice rather than a gate.
lint: configure-release
	@git ls-files -- 'src/*.cc' | xargs -n 4 -P $(JOBS) clang-tidy -p build/release --quiet

# Each target for FUZZ_SECONDS. New inputs stay in build/fuzz/corpus, as does that of a crash.
fuzz:
	@tools/install_deps.sh fuzz
	@$(CRATES)
	@$(CONFIGURE) fuzz $(CMAKE_FLAGS)
	@$(UNRANDOMISED) cmake --build --preset fuzz
	@set -e; found=""; for target in build/fuzz/bin/*fuzz*; do \
	  test -x "$$target" || continue; found=yes; \
	  name=$$(basename "$$target"); grown=build/fuzz/corpus/$$name; seeds=fuzz/corpus/$${name%_fuzz}; \
	  mkdir -p "$$grown"; test -d "$$seeds" || seeds=""; \
	  echo "fuzz: $$name for $(FUZZ_SECONDS) s"; \
	  $(UNRANDOMISED) "$$target" -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 \
	    -artifact_prefix="$$grown/" "$$grown" $$seeds; \
	done; test -n "$$found" || { echo "fuzz: no targets in build/fuzz/bin" >&2; exit 1; }

bench:
	@tools/install_deps.sh bench
	@$(CRATES)
	@$(CONFIGURE) bench $(CMAKE_FLAGS)
	@cmake --build --preset bench
	@set -e; found=""; for program in build/bench/bin/*bench*; do \
	  test -x "$$program" || continue; found=yes; "$$program" $(ARGS); \
	done; test -n "$$found" || { echo "bench: no programs in build/bench/bin" >&2; exit 1; }

# Packages for Linux in build/packages, on Debian 12 for x86-64, with CUDA's kernels but where
# CMAKE_FLAGS=-DMOEFLUX_CUDA=OFF. ARM64= leaves out the archive for 64-bit Arm, as does a system
# that cannot get a cross compiler or Rust's library for it.
ARM64 ?= yes
release:
	@tools/install_deps.sh run release
	@$(CRATES)
	@tools/fetch_page.sh
	@$(MAKE) --no-print-directory web
	@tools/install_python.sh
	@case '$(CMAKE_FLAGS)' in *MOEFLUX_CUDA=OFF*) ;; *) tools/install_cuda.sh ;; esac
	@tools/release/root.sh
	@$(CONFIGURE) package $(CMAKE_FLAGS)
	@cmake --build --preset package --target moeflux moeflux_shared _core _core_others
	@rm -rf build/package-arm64/bin
	@if [ -n "$(ARM64)" ] && tools/install_arm64.sh rust; then tools/release/root.sh arm64 && \
	  $(CONFIGURE) package-arm64 $(CMAKE_FLAGS) && \
	  cmake --build --preset package-arm64 --target moeflux moeflux_shared; \
	else echo "no archive for 64-bit Arm" >&2; fi
	@tools/release/pack.sh

# Documents, commands and reference as HTML in build/site/html.
site: build
	@tools/install_python.sh
	@python3 tools/make_site.py $(MOEFLUX)

install: build
	@cmake --build --preset release --target moeflux moeflux_shared moeflux_static
	@cmake --install build/release --prefix "$(PREFIX)"

clean:
	rm -rf build

help:
	@echo "make                 build/release/bin/moeflux"
	@echo "make deps            install packages and fetch Rust's crates; builds are offline"
	@echo "make web             the page, into build/web, where Node.js is; make builds it too"
	@echo "make run             build it and tell a story; PROMPT='...' ARGS='-n 100 --temp 0'"
	@echo "make test            build and run the whole suite; CTEST_FLAGS='-R Name'"
	@echo "make cases           write .ci/cases, the number of cases of each program, anew"
	@echo "make test-asan       the suite under ASan and UBSan; GROUP=golden and others build a part"
	@echo "make test-tsan       the threaded parts under TSan"
	@echo "make test-arm64      conformance of Arm's kernels under qemu; ARM64_CASES='Linear*'"
	@echo "make test-all        all of these, with long soaks and many seeds; packages in clean roots"
	@echo "make check           formatting, layers, house rules and documents"
	@echo "make ci-quick        all programs, all checks, the tests of what changed, one TSan build"
	@echo "make format          format all C++ with clang-format 14"
	@echo "make lint            clang-tidy over src/"
	@echo "make fuzz            every fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "make bench           benchmarks of the operations"
	@echo "make release         archives, Debian packages, wheels and checksums in build/packages"
	@echo "make site            documents, commands and reference as HTML in build/site/html"
	@echo "make install         install below PREFIX=$(PREFIX)"
	@echo "make clean           remove build/"
