// The names that requests of OpenAI's interfaces may have, with those of llama.cpp and vLLM, whose
// clients ask the same paths.
#pragma once

#include "serve/request/field_list.h"

namespace moeflux::serve {

const FieldList& chat_field_list();
const FieldList& completion_field_list();

}  // namespace moeflux::serve
