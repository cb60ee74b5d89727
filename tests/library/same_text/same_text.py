"""Continues a prompt in Python: same_text.py MODEL_FOLDER PROMPT default|sampled"""

import sys

import moeflux


def main() -> None:
    folder, prompt, mode = sys.argv[1:]
    sequence = moeflux.Model(folder).sequence()
    if mode == "sampled":
        sequence.set_sampler(temperature=0.9, top_k=30, top_p=0.95, min_p=0.02,
                             repeat_penalty=1.2, repeat_last_n=32, presence_penalty=0.1,
                             frequency_penalty=0.2, seed=7)
        done = sequence.generate(prompt, max_tokens=60, ignore_stop_tokens=True)
    else:
        done = sequence.generate(prompt)
    sys.stdout.buffer.write(done.text.encode() + b"\n")  # as the program ends it


main()
