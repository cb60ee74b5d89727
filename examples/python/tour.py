"""A tour of moeflux, cell by cell (Jupyter and editors read the `# %%` marks).

    python tour.py MODEL_FOLDER
"""

# %% Open a model
import sys

import numpy as np

import moeflux

model = moeflux.Model(sys.argv[1] if len(sys.argv) > 1 else "models/fable-20m", context_length=512)
print(f"{model.info['model_type']} on {model.info['device']}")

# %% What comes next? Logits are a NumPy array that the library wrote into.
sequence = model.sequence()
logits = sequence.eval(model.tokenize("Once upon a", add_special=True))
for token in np.argsort(logits)[:-6:-1]:
    print(f"  {logits[token]:6.2f}  {model.detokenize([token])!r}")

# %% A story, as it is written
sequence = model.sequence()
sequence.set_sampler(seed=7)
for piece in sequence.stream("Once upon a time", max_tokens=40):
    print(piece, end="", flush=True)
print()

# %% Another ending: back to a checkpoint, with another seed
beginning = model.sequence()
beginning.eval(model.tokenize("The old king", add_special=True))
mark = beginning.checkpoint()
for seed in (1, 2):
    beginning.restore(mark)
    beginning.set_sampler(seed=seed)
    print(f"{seed}: The old king{beginning.generate(max_tokens=16).text}")

# %% Keep it for another day
snapshot = beginning.save()
another = model.sequence()
another.load(snapshot)
assert another.generate(max_tokens=8).text == beginning.generate(max_tokens=8).text
print(f"{len(snapshot)} bytes hold {len(another)} tokens less 8")

# %% Use of experts
print({name: value for name, value in model.metrics.items() if name.startswith("expert")})
