// Ollama's requests that bring, rename and remove models. They need --manage-models.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

/// "model", "stream": lines of its progress, or one at the end.
void pull_model(Call& call);
/// "source", "destination": a further name, until the server ends.
void copy_model(Call& call);
/// "model": a copy's name, or what was pulled.
void delete_model(Call& call);

}  // namespace moeflux::serve
