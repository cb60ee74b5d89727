// The names that requests of Ollama's chat and generate may have.
#pragma once

#include "serve/request/field_list.h"

namespace moeflux::serve {

const FieldList& ollama_chat_field_list();
const FieldList& ollama_generate_field_list();
/// Both have these in `options`.
const FieldList& ollama_option_list();

}  // namespace moeflux::serve
