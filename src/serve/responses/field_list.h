// The names that requests of OpenAI's responses may have.
#pragma once

#include "serve/request/field_list.h"

namespace moeflux::serve {

const FieldList& responses_field_list();

}  // namespace moeflux::serve
