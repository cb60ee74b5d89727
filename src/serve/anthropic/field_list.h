// The names that requests of Anthropic's messages may have.
#pragma once

#include "serve/request/field_list.h"

namespace moeflux::serve {

const FieldList& messages_field_list();

}  // namespace moeflux::serve
