#!/usr/bin/env python3
"""Enforces the architecture over the source tree: who may include whom, and what may appear where.
Modules of rust/src may use each other, but not in circles.

    tools/check_layers.py [root]

Prints one line per violation, `file:line: what was found, what is allowed`, and exits 1 if any.
A rule that has to change is changed in the tables below, with a reason, not at the place it caught.
Folders below a module have theirs in shelves.py.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rust_modules import circles  # noqa: E402
import shelves  # noqa: E402
from source_text import blank  # noqa: E402

BACKENDS = ("reference", "trace", "cpu", "gpu", "cuda", "metal", "split")

# Module (first folder of src/, or backend/<x>) -> modules it may include besides itself.
MODULES = {
    "base": set(),
    "io": {"base"},
    "tensor": {"base"},
    "quant": {"base", "tensor"},
    "backend": {"base", "tensor", "quant"},
    "checkpoint": {"base", "io", "tensor", "quant"},
    # The checksum of packs is that of what is kept.
    "store": {"base", "io", "checkpoint"},
    # Names of weights say what belongs to a model. For the program alone.
    "hub": {"base", "io", "checkpoint"},
    "experts": {"base", "io", "tensor", "quant", "backend", "checkpoint"},
    "state": {"base", "tensor", "backend"},
    "model": {"base", "tensor", "quant", "backend", "checkpoint", "experts", "state"},
    "sampling": {"base"},
    "text": {"base"},
    # The same base only: pieces of text come in, events go out.
    "output": {"base"},
    # Constraints and the tokens that can follow: bytes of tokens come in.
    "constraint": {"base"},
    # The tokenizer says which spellings are special.
    "templates": {"base", "text"},
    # The trace backend computes nothing: models are described, and steps measured, on it. Rows of
    # n-grams may follow from the text of tokens.
    "load": {"base", "io", "tensor", "quant", "backend", "backend/trace", "checkpoint", "experts",
             "state", "model", "text"},
    "plan": {"base", "io", "quant", "backend", "backend/trace", "experts", "model", "load"},
    "engine": {"base", "io", "store", "backend", "checkpoint", "experts", "state", "model",
               "sampling", "load", "plan"},
    # These two are for the program and for tests: libmoeflux does not hold them.
    "convert": {"base", "io", "tensor", "quant", "backend", "backend/trace", "checkpoint",
                "experts", "model", "load"},
    # Forced texts are written by the decode loop that is measured.
    "lab": {"base", "io", "sampling", "experts", "load", "plan", "engine", "chat",
            "text"},
    "grammar": {"base", "text", "output", "constraint"},
    # From the checkpoint chat reads the vocabulary that a GGUF file holds.
    "chat": {"base", "backend", "checkpoint", "text", "output", "templates", "constraint",
             "sampling", "load", "engine", "devices", "grammar"},
    # The routes of a text's tokens are its client's.
    "schedule": {"base", "io", "constraint", "sampling", "experts", "engine", "chat"},
    # The one place that opens concrete backends: a device has a name there.
    "devices": {"base", "backend", "backend/cpu", "backend/gpu", "backend/cuda",
                "backend/metal", "backend/reference", "backend/split"},
    # Telemetry tells of the experts' places and routes.
    "serve": {"base", "io", "store", "text", "output", "templates", "constraint", "sampling",
              "experts", "plan", "engine", "grammar", "chat", "schedule"},
    "library": {"base", "text", "sampling", "engine", "chat", "serve", "devices"},
    "cli": None,  # None: everything
}
for _backend in BACKENDS:
    MODULES["backend/" + _backend] = {"base", "tensor", "quant", "backend"}
MODULES["backend/cuda"].add("backend/gpu")
MODULES["backend/metal"].add("backend/gpu")

# The part of include/ that the library module puts over the engine, for other programs.
PUBLIC_HEADERS = "moeflux/"

# Third-party header -> the one file of src/ that includes it.
THIRD_PARTY = {
    "nlohmann/json.hpp": "src/base/json.h",
    "nlohmann/json_fwd.hpp": "src/base/json_fwd.h",
    "fmt/": "src/base/format.h",
    "pcre2.h": "src/text/",
    "utf8proc.h": "src/text/",
    "histedit.h": "src/cli/chat/libedit_editor.cc",
    "liburing.h": "src/io/uring/uring_reader.cc",
    "xxhash.h": "src/checkpoint/checksum.cc",
    "curl/curl.h": "src/hub/curl.h",
    "boost/asio/": "src/serve/http/http_connection.h",
    "boost/beast/": "src/serve/http/request_reader.cc",
}
# Folders named above may include the header in this many files at most.
THIRD_PARTY_FILES_MAX = 1

# Standard library headers and C headers of POSIX are written <...>; so are these of compilers.
_STANDARD = re.compile(
    r"^[a-z_0-9]+$|^[a-z_0-9]+\.h$|^(sys|linux|mach|mach-o|arpa|netinet)/[\w/]+\.h$")

# Kernel files are compiled with instruction sets above the baseline: an inline function of an
# ordinary header, compiled there, might be the copy the linker keeps for the whole program.
KERNEL_FOLDERS = ("src/backend/cpu/isa/", "src/backend/cpu/kernels/")
KERNEL_SYSTEM = {
    "arm_neon.h", "bit", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstring",
    "immintrin.h", "limits", "span", "type_traits"}
# *_text.h are texts that kernels include inside a namespace of their own.
KERNEL_PROJECT = re.compile(r"^(backend/cpu/|backend/\w+_text\.h$|quant/formats/)")

# Model families live in src/model/families and nowhere else, not even as strings. Ollama is a
# program.
FAMILIES = re.compile(
    r"qwen|deepseek|mixtral|mistral|olmoe|gpt[-_]?oss|minimax|(?<!o)llama|granite|\bglm|\bglm\d"
    r"|ernie|kimi|gemma", re.IGNORECASE)
FAMILIES_BESIDES = {
    "src/model/config/rope.cc": "rope types and their keys have names of families in config.json",
    "src/model/config/rope.h": "rope types have names of families in config.json",
    "src/hub/local_models.cc": "finds the folders of other programs",
    "src/cli/commands/perplexity.cc": "names the program whose scores it reproduces",
    "src/output/output_formats.cc": "some tags carry the names of families that write them",
    "src/serve/metrics.cc": "counters have the names under which routers read them",
    "src/serve/request/field_list.cc": "a form of reasoning has the name of a family in requests",
    "src/text/regex/named_splits.cc": "GGUF names splits after the families that use them",
    "src/text/formats/sentencepiece_model.cc": "names its kind as GGUF does",
    "src/cli/commands/plan.cc": "an example of its help names a published model",
    "src/cli/commands/synth.cc": "the same",
    "src/text/formats/stored_vocabulary.cc": "GGUF names kinds of tokenizers after families",
}

# A storage format's parts are known to its definition, to those who decode or compute with it, and
# to those who choose or spell it. Everybody else asks its traits.
FORMAT_INSIDES = re.compile(
    r"(?:\.|->)group_size\b|\b(?:format|f|stated|quant|wanted|assumed_?|options|model|w|matrix|m"
    r"|needs)(?:\(\))?(?:\.|->)bits\b|\brouter_bits\b|\bQuantFormat::affine\b|\baffine::"
    r"|\btiled::")
FORMAT_HOMES = (
    "src/quant/",
    # Decoders and the kernels of formats that have some, with the files that choose among them.
    "src/backend/cpu/decoders/", "src/backend/cpu/isa/", "src/backend/cpu/kernels/",
    "src/backend/cpu/kernel_args.h", "src/backend/cpu/tile_products.",
    "src/backend/cpu/cpu_device.cc", "src/backend/cpu/weight_kernels.",
    "src/backend/gpu/kernels/", "src/backend/gpu/launch/mma_",
    "src/backend/gpu/launch/down_sum_plans.cc", "src/backend/gpu/launch/few_slots_plans.cc",
    "src/backend/gpu/ops/latent_attention.cc",
    "src/backend/gpu/launch/plan_building.cc",
    # Spellings of formats in checkpoints.
    "src/model/weights/stored_formats/")
FORMAT_HOMES_BESIDES = {
    "src/checkpoint/expert_pack.cc": "spells formats in manifests",
    "src/checkpoint/expert_pack_parse.cc": "reads them",
    "src/convert/random/synthetic.cc": "makes affine tensors",
    "src/cli/commands/inspect.cc": "has flags for what is assumed",
    "src/cli/commands/pack.cc": "has flags for what to quantise to",
    "src/cli/plan/planning.cc": "says what is assumed",
    "src/cli/commands/quantize.cc": "has flags for what to quantise to",
    "src/convert/quantize/quantize_plan.cc": "chooses what to quantise to",
    "src/cli/commands/synth.cc": "has flags for what to make",
    "src/convert/random/synthetic_model.cc": "chooses what to make",
    "src/convert/pack/pack_plan.cc": "chooses what to quantise to",
    "src/model/weights/assumed_weights.cc": "chooses what is assumed",
    "src/model/config/quant_config.cc": "reads what config.json says of MLX's formats",
    "src/model/config/quant_rule.cc": "reads what config.json says of other formats",
    "src/model/weights/stored_formats.cc": "finds MLX's formats by their tensors' shapes",
    "src/model/weights/tiled_read.cc": "arranges tiles while it reads",
    "src/model/weights/weight_origin.h": "chooses what is assumed",
}
# Folders in which the same words mean other things: threads of a group, bits of a lane.
FORMAT_WORDS_ELSEWHERE = (
    "src/backend/cuda/", "src/backend/gpu/emulator/", "src/backend/gpu/launch/plan.",
    "src/backend/gpu/launch/launch_runs.",
    "src/backend/metal/", "src/tensor/dtype.")

FILE_ACCESS = re.compile(
    r"#\s*include\s*<(?:fstream|filesystem|fcntl\.h|dirent\.h|sys/stat\.h)>"
    r"|\bstd::(?:basic_)?[io]?fstream\b|\bstd::filesystem\b"
    # A bare open( may be a member being declared; the system's own needs <fcntl.h>, caught above.
    r"|(?<![\w>.)])\s*::open\s*\("
    r"|(?<![\w.>:])(?:::|std::)?(?:fopen|freopen|openat|opendir|mkstemp|preadv?)\s*\(")
FILE_ACCESS_ALLOWED = {
    "src/base/numa.cc": "reads the nodes of memory; base cannot use io",
    "src/base/thread_pool.cc": "reads the CPU quota of the control group; base cannot use io",
    "src/serve/http/http_server.cc": "leaves a socket's path to its owner; serve reads no file",
}

THREADS = re.compile(r"\bstd::j?thread\b(?!::)|\bstd::async\b|\bpthread_create\b")
# The scheduler computes for clients that come and go: none of their threads may have to stay. The
# server's sockets wait on a thread of their own: no step of a model may make a client wait. Stored
# parts of an answer wait for a drive on another: no drive may make a step wait. One more loads
# models and lets idle ones go by the clock.
THREADS_ALLOWED = (
    "src/base/thread_pool", "src/io/", "src/schedule/scheduler",
    "src/serve/http/http_server", "src/serve/kept/job_thread", "src/serve/models",
    "src/load/layer_stream")

# Code that makes a sampler draws tokens in a loop: there is one such loop, which clients share.
SAMPLER = re.compile(r"\bSampler::create\s*\(")
SAMPLER_ALLOWED = ("src/sampling/", "src/chat/session.cc")

THROW = re.compile(r"\bthrow\b")
THROW_ALLOWED = {
    "src/engine/allocation_test.cc": "an operator new that fails: the language knows no other way",
}
# Whether tokens are a prompt or decode is stated (StepPhase): a step of one row may be either.
ONE_ROW = re.compile(
    r"\b(?:n|tokens|rows|num_tokens|num_rows)(?:\(\)|\.size\(\))?\s*[!=]=\s*1\b"
    r"|\bdim\(0\)\s*[!=]=\s*1\b")
ONE_ROW_FORBIDDEN = ("src/experts/", "src/state/", "src/model/", "src/load/", "src/plan/",
                     "src/engine/", "src/lab/", "src/chat/", "src/schedule/")
USING_NAMESPACE = re.compile(r"\busing\s+namespace\b")

# A cheap reading of "no mutable globals": in this code style nothing but namespace scope starts in
# column one, and `static` or `thread_local` before a variable means that it outlives its scope.
STATIC_VARIABLE = re.compile(
    r"^\s*(?:inline\s+)?(?:static|thread_local)\s+(?!.*\b(?:const|constexpr|constinit|consteval)\b)"
    r"[^()={};]*[\w>\]*&]\s+[*&]?\w+(?:\[[^\]]*\])?\s*(?:=(?!=)|;|\{)")
GLOBAL_VARIABLE = re.compile(
    r"^(?!(?:const|constexpr|constinit|consteval|static|using|typedef|namespace|class|struct|union|"
    r"enum|template|friend|extern|return|case|default|public|private|protected|goto|break|continue|"
    r"static_assert|concept|requires|asm|else|do|if|for|while|switch)\b)"
    r"(?!.*\b(?:const|constexpr|operator)\b)"
    r"(?:inline\s+)?[A-Za-z_][\w:]*(?:<[^;={}]*>)?[\s*&]+\w+(?:\[[^\]]*\])?\s*"
    r"(?:=[^=;][^;]*|\{[^;]*\})?;")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
MODULE_DECLARATION = re.compile(r"moeflux_module\(\s*(\w+)([^)]*)\)", re.DOTALL)


def module_of(path):
    """The module of a path below src/: "experts", "backend", "backend/cpu"."""
    parts = path.split("/")
    if parts[0] == "backend" and len(parts) > 2 and parts[1] in BACKENDS:
        return "backend/" + parts[1]
    return parts[0]


def is_test(path):
    return path.endswith(("_test.cc", "_test_util.h", "_test_util.cc")) or path.startswith("tests/")


def source_files(root):
    """Paths of C++ sources below root, relative to it, sorted."""
    found = []
    for top in ("include", "src", "tests", "benchmarks", "fuzz"):
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in files:
                if name.endswith((".h", ".hpp", ".cc", ".inl", ".cu", ".mm", ".metal")):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    found.append(path.replace(os.sep, "/"))
    return sorted(found)


class Checker:
    def __init__(self, root):
        self.root = root
        self.violations = []
        self.third_party_users = {}

    def report(self, path, line, message):
        self.violations.append((path, line, message))

    def run(self):
        for path in source_files(self.root):
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                text = file.read()
            self.check_includes(path, text)
            if path.startswith("src/"):
                self.check_words(path, text)
        self.check_third_party_users()
        self.check_cmake()
        for name, line, circle in circles(os.path.join(self.root, "rust", "src")):
            self.report("rust/src/" + name, line,
                        f"the modules {' > '.join(circle)} use each other in a circle, expected: "
                        "what both sides need in a module below them")
        for path, line, message in shelves.check_folders(self.root, MODULES):
            self.report(path, line, message)
        return sorted(self.violations)

    # --- Includes ---

    def check_includes(self, path, text):
        for number, line in enumerate(blank(text, keep_strings=True).split("\n"), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            bracket, target = match.groups()
            if bracket == "<":
                self.check_system_include(path, number, target)
            if path.startswith("include/"):
                self.check_public_include(path, number, bracket, target)
            if path.startswith("src/"):
                if bracket == '"':
                    self.check_project_include(path, number, target)
                self.check_kernel_include(path, number, bracket, target)

    def check_public_include(self, path, number, bracket, target):
        """Public headers stand alone: others compile them without src/."""
        if bracket == '"' and not os.path.exists(os.path.join(self.root, "include", target)):
            self.report(path, number, f'public header includes "{target}", allowed: the standard '
                                      "library and include/")

    def check_project_include(self, path, number, target):
        if target.startswith(PUBLIC_HEADERS):
            if not path.startswith("src/library/"):
                self.report(path, number, f'"{target}" is the public interface, allowed only in '
                                          "src/library/")
            return
        if not os.path.exists(os.path.join(self.root, "src", target)):
            # Another person's header may be on its way; the compiler says so better than we can.
            if target.split("/")[0] not in MODULES:
                if not (is_test(path) and target.startswith("tests/")):
                    self.report(path, number, f'"{target}" is not below src/, expected a path from '
                                              'the include root such as "base/result.h"')
                return
        if is_test(path):
            return  # tests may look everywhere; the linker still sees what they depend on
        if "_test" in os.path.basename(target):
            self.report(path, number, f'"{target}" is for tests only, found in {path}')
            return
        own, other = module_of(path[len("src/"):]), module_of(target)
        if own not in MODULES:
            self.report(path, number, f"module {own} is not in the table of tools/check_layers.py")
            return
        allowed = MODULES[own]
        if own == other:
            message = shelves.check_include(path[len("src/"):], target)
            if message:
                self.report(path, number, message)
            return
        if allowed is None or other in allowed:
            return
        names = ", ".join(sorted(allowed)) or "nothing of ours"
        self.report(path, number, f'{own} includes "{target}" of {other}, allowed: {names}')

    def check_system_include(self, path, number, target):
        if target.startswith(("gtest/", "gmock/")):
            if not is_test(path):
                self.report(path, number, f"<{target}>, allowed only in *_test.cc and tests/")
            return
        if target.startswith("benchmark/"):
            if not path.startswith("benchmarks/"):
                self.report(path, number, f"<{target}>, allowed only in benchmarks/")
            return
        for header, home in THIRD_PARTY.items():
            if target == header or (header.endswith("/") and target.startswith(header)):
                if path == home or (home.endswith("/") and path.startswith(home)):
                    self.third_party_users.setdefault(header, []).append((path, number))
                else:
                    self.report(path, number, f"<{target}>, allowed only in {home}")
                return
        if not _STANDARD.match(target):
            self.report(path, number, f"<{target}> is not in the third-party table of "
                                      "tools/check_layers.py")

    def check_kernel_include(self, path, number, bracket, target):
        if not path.startswith(KERNEL_FOLDERS) or is_test(path):
            return
        if bracket == "<" and target not in KERNEL_SYSTEM:
            self.report(path, number, f"kernel file includes <{target}>, allowed: "
                                      + ", ".join(sorted(KERNEL_SYSTEM)))
        if bracket == '"' and not KERNEL_PROJECT.match(target):
            self.report(path, number, f'kernel file includes "{target}", allowed: backend/cpu/*, '
                                      "quant/formats/*")

    def check_third_party_users(self):
        for header, users in self.third_party_users.items():
            files = sorted(set(path for path, _ in users))
            if len(files) > THIRD_PARTY_FILES_MAX:
                for path, number in users[1:]:
                    self.report(path, number, f"<{header}> is included by {', '.join(files)}, "
                                              "allowed: one file")

    # --- Words ---

    def check_words(self, path, text):
        code = blank(text).split("\n")
        with_strings = blank(text, keep_strings=True).split("\n")
        for number, (line, strings) in enumerate(zip(code, with_strings), 1):
            if THROW.search(line) and path not in THROW_ALLOWED:
                self.report(path, number, "throw, allowed: Result, Status or MF_CHECK")
            if USING_NAMESPACE.search(line):
                self.report(path, number, "using namespace, allowed: using one name")
            if is_test(path):
                continue
            self.check_places(path, number, line, strings)

    def check_places(self, path, number, line, strings):
        insides = FORMAT_INSIDES.search(line)
        if (insides and not path.startswith(FORMAT_HOMES + FORMAT_WORDS_ELSEWHERE)
                and path not in FORMAT_HOMES_BESIDES):
            self.report(path, number, f"'{insides.group()}' of a storage format, allowed only in "
                                      "src/quant/, decoders and kernels, and the files that "
                                      "FORMAT_HOMES_BESIDES names")
        family = FAMILIES.search(strings)
        is_home = path.startswith("src/model/families/") or path in FAMILIES_BESIDES
        if family and not is_home:
            self.report(path, number, f"model family '{family.group()}', allowed only in "
                                      "src/model/families/")
        access = FILE_ACCESS.search(line)
        if access and not path.startswith("src/io/") and path not in FILE_ACCESS_ALLOWED:
            self.report(path, number, f"file access '{access.group().strip()}', allowed only in "
                                      "src/io/")
        thread = THREADS.search(line)
        if thread and not path.startswith(THREADS_ALLOWED):
            self.report(path, number, f"{thread.group()}, allowed only in "
                                      + ", ".join(THREADS_ALLOWED))
        one_row = ONE_ROW.search(line)
        if one_row and path.startswith(ONE_ROW_FORBIDDEN):
            self.report(path, number, f"'{one_row.group()}' as if it told the phase, allowed: a "
                                      "StepPhase that the caller states")
        if SAMPLER.search(line) and not path.startswith(SAMPLER_ALLOWED):
            self.report(path, number, "Sampler::create, allowed only in "
                                      + ", ".join(SAMPLER_ALLOWED) + ": use a Session")
        if STATIC_VARIABLE.match(line) or GLOBAL_VARIABLE.match(line):
            self.report(path, number, f"mutable global or static '{line.strip()}', allowed: a "
                                      "constant, or a member of a context that is passed")

    # --- CMake ---

    def check_cmake(self):
        """DEPENDS of moeflux_module() must not be wider than the table either."""
        for folder, folders, files in os.walk(os.path.join(self.root, "src")):
            folders.sort()
            if "CMakeLists.txt" not in files:
                continue
            path = os.path.relpath(os.path.join(folder, "CMakeLists.txt"), self.root)
            path = path.replace(os.sep, "/")
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                text = re.sub(r"#[^\n]*", "", file.read())
            for match in MODULE_DECLARATION.finditer(text):
                number = text.count("\n", 0, match.start()) + 1
                self.check_declaration(path, number, match.group(1), match.group(2).split())

    def check_declaration(self, path, number, name, words):
        own = name.replace("backend_", "backend/")
        if own not in MODULES:
            self.report(path, number, f"module {own} is not in the table of tools/check_layers.py")
            return
        depends = []
        if "DEPENDS" in words:
            for word in words[words.index("DEPENDS") + 1:]:
                if word in ("PRIVATE", "SOURCES"):
                    break
                depends.append(word.replace("backend_", "backend/"))
        allowed = MODULES[own]
        for module in depends:
            if allowed is not None and module != own and module not in allowed:
                self.report(path, number, f"{own} DEPENDS on {module}, allowed: "
                                          + (", ".join(sorted(allowed)) or "nothing of ours"))


def check(root):
    """Violations of the tree at root as sorted (path, line, message)."""
    return Checker(root).run()


def main(arguments):
    root = arguments[1] if len(arguments) > 1 else os.path.join(os.path.dirname(__file__), "..")
    if not os.path.isdir(os.path.join(root, "src")):
        print(f"check_layers: {root} has no src/", file=sys.stderr)
        return 2
    violations = check(root)
    for path, line, message in violations:
        print(f"{path}:{line}: {message}")
    if not violations:
        print(f"check_layers: {len(source_files(root))} files keep to the layers")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
