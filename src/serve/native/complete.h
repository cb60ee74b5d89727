// llama.cpp's routes that continue texts, in its own words.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

/// POST /completion, and POST /completions without a version before it.
void complete_natively(Call& call);
/// POST /infill.
void fill_in(Call& call);

}  // namespace moeflux::serve
