// The handlers of routes that have a file of their own.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

/// POST /v1/embeddings. "input": a text, ids of tokens, or a list of these; "encoding_format":
/// "float" or "base64", the f32 in little-endian order; "dimensions"; "prompt_name".
void embeddings(Call& call);
void embeddings_natively(Call& call);
/// POST /v1/rerank, as Jina, Cohere, llama.cpp and vLLM have it. "query", "documents" (texts, or
/// objects with a "text"), "top_n", "return_documents". 501 where the model does not rerank.
void rerank(Call& call);

}  // namespace moeflux::serve
