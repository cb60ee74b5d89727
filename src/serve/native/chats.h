// Chats of a page, which the server keeps where it may: JSON objects that it does not look into.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

// The handlers of its routes.
void list_chats(Call& call);
void kept_chat(Call& call);
void keep_chat(Call& call);
void delete_chat(Call& call);

}  // namespace moeflux::serve
