// A build without libedit has no line editor of a terminal.
#include "cli/chat/line_editor.h"

namespace moeflux {

std::unique_ptr<LineEditor> make_libedit_editor(ChatHistory) { return nullptr; }

}  // namespace moeflux
