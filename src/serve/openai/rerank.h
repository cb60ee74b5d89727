// POST /v1/rerank, as Jina, Cohere, llama.cpp and vLLM have it.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

/// "query", "documents" (texts, or objects with a "text"), "top_n", "return_documents". 501 where
/// the model does not rerank.
void rerank(Call& call);

}  // namespace moeflux::serve
