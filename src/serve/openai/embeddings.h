// POST /v1/embeddings.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

/// "input": a text, ids of tokens, or a list of these; "encoding_format": "float" or "base64", the
/// f32 in little-endian order; "dimensions"; "prompt_name".
void embeddings(Call& call);

}  // namespace moeflux::serve
