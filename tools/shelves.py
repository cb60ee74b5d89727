"""Folders below the modules of src/: what each may include of its own module, and how many files a
folder holds. tools/check_layers.py enforces these rows beside its table of modules.
"""

import os
import re

# Source files of a folder, tests beside them included: more is a list that nobody reads.
FOLDER_FILES_MAX = 60
SOURCES = (".h", ".cc", ".mm", ".cu", ".in", ".inl", ".metal")

_SERVE_PARTS = {"serve", "serve/answer", "serve/request", "serve/wire"}

_KERNELS = {"backend/gpu/kernels"} | {
    "backend/gpu/kernels/" + kind
    for kind in ("attention", "delta", "experts", "matmul", "norm", "route", "rows")}

# Folder of a module that has shelves -> folders of the same module that it may include.
SHELVES = {
    "backend": {"backend/ops"},  # the list of operations
    "backend/ops": {"backend"},
    "backend/reference": set(),
    "backend/reference/ops": {"backend/reference"},
    "backend/trace": set(),
    "backend/split": set(),
    "backend/cpu": {"backend/cpu/kernels"},
    "backend/cpu/ops": {"backend/cpu"},
    "backend/cpu/kernels": set(),
    "backend/cpu/isa": {"backend/cpu/kernels"},
    "backend/cpu/decoders": {"backend/cpu", "backend/cpu/kernels"},
    "backend/gpu": _KERNELS | {"backend/gpu/emulator", "backend/gpu/launch", "backend/gpu/ops"},
    "backend/gpu/ops": {"backend/gpu", "backend/gpu/launch"},
    "backend/gpu/launch": _KERNELS | {"backend/gpu", "backend/gpu/ops"},
    **{kernels: _KERNELS | {"backend/gpu/dialect"} for kernels in _KERNELS},
    "backend/gpu/dialect": {"backend/gpu/emulator", "backend/gpu/kernels"},
    "backend/gpu/emulator": {"backend/gpu/dialect", "backend/gpu/launch"},
    "backend/gpu/emulator/kernels": _KERNELS | {"backend/gpu/emulator"},
    "backend/cuda": set(),
    "backend/cuda/kernels": set(),
    "backend/metal": set(),
    "backend/metal/check": set(),
    "backend/metal/check/Foundation": set(),
    "backend/metal/check/Metal": {"backend/metal/check/Foundation"},

    "chat": {"chat/drafts",  # a step has drafts
             "chat/embedding"},  # a model's text says how it is embedded
    "chat/drafts": {"chat"},
    "chat/embedding": {"chat"},

    "cli": {"cli/commands",  # the list of commands
            "cli/plan"},  # a download is planned first
    "cli/chat": {"cli"},
    "cli/plan": {"cli"},
    "cli/serve": {"cli", "cli/plan"},
    "cli/commands": {"cli", "cli/chat", "cli/plan", "cli/serve"},

    "convert": set(),
    "convert/pack": {"convert"},
    "convert/quantize": {"convert"},
    "convert/random": {"convert"},

    # Every store reads routes back and counts helped steps.
    "experts": {"experts/routes", "experts/tiers"},
    "experts/cache": {"experts"},
    "experts/drive": {"experts", "experts/cache"},
    "experts/routes": {"experts", "experts/cache"},
    "experts/tiers": {"experts", "experts/cache"},
    "experts/stores": {"experts", "experts/cache", "experts/drive", "experts/routes",
                       "experts/tiers"},

    "io": {"io/uring"},  # the list of readers
    "io/linux": {"io"},
    "io/macos": {"io"},
    "io/posix": {"io"},
    "io/uring": {"io"},

    "model": set(),
    "model/config": {"model"},
    "model/gguf": set(),
    "model/weights": {"model", "model/config"},
    "model/weights/stored_formats": {"model/weights"},
    "model/mixers": {"model", "model/config", "model/weights"},
    "model/blocks": {"model", "model/mixers", "model/weights"},
    "model/family": {"model", "model/blocks", "model/config", "model/mixers", "model/weights"},
    "model/families": {"model/blocks", "model/family", "model/mixers"},
    "model/families/gguf": {"model/gguf"},

    "quant": {"quant/formats"},  # the list of formats
    "quant/formats": {"quant"},

    "serve": {"serve/answer", "serve/http", "serve/kept", "serve/request", "serve/wire"},
    "serve/wire": set(),
    "serve/kept": {"serve/wire"},
    "serve/request": {"serve/wire"},
    "serve/answer": {"serve/kept", "serve/request", "serve/wire"},
    "serve/http": {"serve/kept", "serve/wire"},
    # Each answers requests of the other's clients: /completions without a version is llama.cpp's.
    "serve/openai": _SERVE_PARTS | {"serve/native"},
    "serve/native": _SERVE_PARTS | {"serve/http", "serve/kept", "serve/openai"},
    "serve/anthropic": _SERVE_PARTS | {"serve/openai"},
    "serve/ollama": _SERVE_PARTS | {"serve/openai"},
    "serve/page": {"serve", "serve/wire"},
    "serve/responses": _SERVE_PARTS | {"serve/http", "serve/openai"},

    "text": {"text/bpe", "text/encoding", "text/regex", "text/spaces", "text/vocabulary"},
    "text/encoding": set(),
    "text/vocabulary": {"text/encoding"},
    "text/bpe": {"text/encoding", "text/vocabulary"},
    "text/regex": {"text/encoding"},
    "text/spaces": {"text/bpe", "text/encoding", "text/regex", "text/vocabulary"},
    "text/formats": {"text", "text/encoding", "text/regex", "text/spaces", "text/vocabulary"},
}

ARCHITECTURE = "ARCHITECTURE.md"
_HEADING = re.compile(r"## Folders\b")
_ROW = re.compile(r"\| `([A-Za-z_/]+)` \|")


def folder_files(root):
    """{folder below src/: its source files, sorted}."""
    src = os.path.join(root, "src")
    found = {}
    for folder, _, files in os.walk(src):
        sources = sorted(name for name in files if name.endswith(SOURCES))
        if sources:
            found[os.path.relpath(folder, src).replace(os.sep, "/")] = sources
    return found


def check_include(path, target):
    """Violations of a file of src/ that includes a header of its own module, or None."""
    own, other = os.path.dirname(path), os.path.dirname(target)
    if own == other or own not in SHELVES:
        return None
    if other in SHELVES[own]:
        return None
    names = ", ".join(sorted(SHELVES[own])) or "nothing of its module"
    return f'{own} includes "{target}" of {other}, allowed: {names}'


def check_folders(root, modules):
    """(path, line, message) of folders that hold too much or that a table does not name."""
    found = []
    for folder, files in folder_files(root).items():
        first = f"src/{folder}/{files[0]}"
        if len(files) > FOLDER_FILES_MAX:
            found.append((first, 1, f"folder src/{folder} holds {len(files)} source files, "
                                    f"allowed: {FOLDER_FILES_MAX}"))
        is_shelf = "/" in folder
        if is_shelf and folder.split("/")[0] in modules and folder not in SHELVES:
            found.append((first, 1, f"folder src/{folder} is not in the table of "
                                    "tools/shelves.py"))
    return found + check_document(root, modules)


def check_document(root, modules):
    """ARCHITECTURE.md has a row for each module and shelf, and for nothing else."""
    path = os.path.join(root, ARCHITECTURE)
    if not os.path.exists(path):
        return []
    rows, inside, heading = {}, False, 1
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("## "):
                inside = bool(_HEADING.match(line))
                heading = number if inside else heading
            row = _ROW.match(line)
            if inside and row:
                rows[row.group(1)] = number
    expected = set(modules) | set(SHELVES)
    missing = [(ARCHITECTURE, heading, f"no row for `{name}` in the tables of folders")
               for name in sorted(expected - set(rows))]
    return missing + [(ARCHITECTURE, rows[name], f"`{name}` is neither a module of "
                                                 "tools/check_layers.py nor a folder of "
                                                 "tools/shelves.py")
                      for name in sorted(set(rows) - expected)]
