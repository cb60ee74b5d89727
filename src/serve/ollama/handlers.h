// The handlers of routes that have a file of their own.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

/// /api/embed. "input": a text or a list of them; "dimensions"; texts longer than the context are
/// cut unless "truncate" is false.
void ollama_embed(Call& call);
/// Its predecessor. "prompt": one text.
void ollama_embeddings(Call& call);

// Requests that bring, rename and remove models. They need --manage-models.
/// "model", "stream": lines of its progress, or one at the end.
void pull_model(Call& call);
/// "source", "destination": a further name, until the server ends.
void copy_model(Call& call);
/// "model": a copy's name, or what was pulled.
void delete_model(Call& call);

}  // namespace moeflux::serve
