"""Continues a prompt in Python, with the modes of same_text.c: same_text.py MODEL_FOLDER PROMPT
MODE [VALUE]"""

import sys

import moeflux


def main() -> None:
    folder, prompt, mode, value = (sys.argv[1:] + [""])[:4]
    sequence = moeflux.Model(folder, context_length=int(value) if mode == "full" else 0).sequence()
    text = []

    def on_text(piece: str) -> bool:
        """Python sees no empty pieces: the tokens of these stories all have text."""
        text.append(piece)
        return mode != "cancelled" or len(text) < int(value)

    if mode == "default":
        done = sequence.generate(prompt, on_text=on_text)
    else:
        sequence.set_sampler(temperature=0.9, top_k=30, top_p=0.95, min_p=0.02,
                             repeat_penalty=1.2, repeat_last_n=32, presence_penalty=0.1,
                             frequency_penalty=0.2, seed=7, typical_p=0.95,
                             dynatemp_range=0.25, dry_multiplier=0.75,
                             dry_sequence_breakers=["\n"],
                             samplers=["penalties", "dry", "typ_p", "top_k", "top_p", "min_p",
                                       "temperature"])
        tokens = {"short": value, "full": -1}.get(mode, 60)
        done = sequence.generate(prompt, max_tokens=int(tokens), ignore_stop_tokens=True,
                                 stop=[value] if mode == "stopped" else [], on_text=on_text)
    assert done.text == "".join(text)
    sys.stdout.buffer.write(done.text.encode() + b"\n")  # as the program ends it


main()
