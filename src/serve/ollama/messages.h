// The messages of Ollama's chat: their calls and results find each other by ids, names and order.
#pragma once

#include "base/json.h"
#include "serve/request/fields.h"

namespace moeflux::serve {

/// `messages` of the request as chat templates have them. Problems are left in `fields`.
Json read_ollama_messages(Fields& fields);

/// Adds a note for images of a message that are left out, behind its text.
void add_left_out_images(std::string& content, size_t images);

}  // namespace moeflux::serve
