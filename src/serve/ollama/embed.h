// Ollama's /api/embed and its predecessor.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

/// "input": a text or a list of them; "dimensions"; texts longer than the context are cut unless
/// "truncate" is false.
void ollama_embed(Call& call);
/// "prompt": one text.
void ollama_embeddings(Call& call);

}  // namespace moeflux::serve
