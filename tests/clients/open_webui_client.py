"""The requests that Open WebUI sends for retrieval, in its words: embeddings of batches of texts
from an OpenAI-like server and from Ollama, and an external reranker. The package needs gigabytes.
"""

import json
import math
import os
import urllib.error
import urllib.request

URL = os.environ["MOEFLUX_TEST_URL"]
HEADERS = {"Content-Type": "application/json",
           "Authorization": f"Bearer {os.environ['MOEFLUX_TEST_KEY']}"}
TEXTS = [f"chunk {i}: the fox runs through the wood" for i in range(40)]


def post(url, payload, **headers):
    """The JSON of the answer."""
    request = urllib.request.Request(url, json.dumps(payload).encode(), {**HEADERS, **headers})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def similarity(one, other):
    return sum(a * b for a, b in zip(one, other))


# Its engine "openai": batches of 1 to 32 texts, of which it takes data[].embedding in order.
vectors = []
for begin in range(0, len(TEXTS), 32):
    data = post(f"{URL}/embeddings", {"input": TEXTS[begin:begin + 32], "model": "fable-20m"},
                **{"X-OpenWebUI-User-Name": "someone"})
    vectors += [one["embedding"] for one in data["data"]]
assert len(vectors) == len(TEXTS) and all(len(vector) == 256 for vector in vectors)
assert all(abs(math.sqrt(similarity(vector, vector)) - 1) < 1e-5 for vector in vectors)

# Its engine "ollama": the same of /api/embed.
data = post(URL.removesuffix("/v1") + "/api/embed", {"input": TEXTS, "model": "fable-20m"})
assert data["embeddings"] == vectors

# A query is a list of one text.
query = post(f"{URL}/embeddings", {"input": [TEXTS[7]], "model": "fable-20m"})
best = max(range(len(TEXTS)), key=lambda i: similarity(query["data"][0]["embedding"], vectors[i]))
assert best == 7, best

# Its external reranker. The embedded model is none, which it is told.
payload = {"model": "fable-20m", "query": "a fox", "documents": TEXTS[:3], "top_n": 3}
try:
    post(f"{URL}/rerank", payload)
    raise AssertionError("the embedded model does not rerank")
except urllib.error.HTTPError as error:
    assert error.code == 501 and "does not rerank" in json.load(error)["error"]["message"]
print("open webui:", len(vectors), "vectors")
