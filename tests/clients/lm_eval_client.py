"""lm-eval's local-completions: log-likelihoods are those of the model's own logits.

The task and its 200 items are made here; the other side is `moeflux logits`.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

import lm_eval
import numpy
import tokenizers
from lm_eval.tasks import TaskManager

PROGRAM, MODEL = sys.argv[1:3]
TASK = """task: moeflux_stories
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
target_delimiter: ""
metric_list:
  - metric: acc
"""


def items():
    """200 beginnings of stories with a likely and an unlikely end."""
    who = ["fox", "king", "queen", "boy", "girl", "wolf", "man", "old woman", "bird", "cat"]
    where = ["forest", "castle", "garden", "village", "house"]
    how = ["Once upon a time the {} lived in the", "The {} was very hungry and went to the",
           "One day the {} came out of the", "Then the {} saw a great light over the"]
    return [{"text": form.format(one), "choices": [f" {place}.", f" {place} quadratic."]}
            for one in who for place in where for form in how]


def log_likelihood(tokenizer, text, end, folder):
    """Sum of the end's log-probabilities in f64, from the program's logits."""
    ids = tokenizer.encode(text + end).ids
    count = len(ids) - len(tokenizer.encode(text).ids)
    path = os.path.join(folder, "logits.safetensors")
    subprocess.run([PROGRAM, "logits", "-m", MODEL, "--tokens", ",".join(map(str, ids)),
                    "-o", path], check=True, capture_output=True)
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    entry = next(value for key, value in header.items() if key != "__metadata__")
    begin, end_at = entry["data_offsets"]
    logits = numpy.frombuffer(data[8 + size + begin:8 + size + end_at], "<f4").astype("f8")
    logits = logits.reshape(entry["shape"][-2:])
    total = 0.0
    for at in range(len(ids) - count, len(ids)):
        row = logits[at - 1]
        top = row.max()
        total += row[ids[at]] - top - numpy.log(numpy.exp(row - top).sum())
    return total


def main():
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "stories.jsonl")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in items())
        with open(os.path.join(folder, "stories.yaml"), "w", encoding="utf-8") as file:
            file.write(TASK.format(data=data))
        os.environ["OPENAI_API_KEY"] = os.environ["MOEFLUX_TEST_KEY"]
        result = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={"model": "fable-20m", "tokenizer": MODEL, "num_concurrent": 4,
                        "base_url": os.environ["MOEFLUX_TEST_URL"] + "/completions",
                        "tokenized_requests": False},
            tasks=["moeflux_stories"], log_samples=True,
            task_manager=TaskManager(include_path=folder, include_defaults=False))
        samples = result["samples"]["moeflux_stories"]
        assert len(samples) == 200, len(samples)
        worst = 0.0
        for sample in samples:
            for answer, end in zip(sample["resps"], sample["doc"]["choices"]):
                served = float(answer[0][0])
                own = log_likelihood(tokenizer, sample["doc"]["text"], end, folder)
                worst = max(worst, abs(served - own))
        assert worst < 1e-3, worst
        accuracy = result["results"]["moeflux_stories"]["acc,none"]
        print(f"lm-eval: 400 log-likelihoods within {worst:.1e} of the logits, accuracy {accuracy}")


if __name__ == "__main__":
    main()
