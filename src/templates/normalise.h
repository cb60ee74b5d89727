// Messages as clients send them to messages as one template takes them.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "templates/capabilities.h"

namespace moeflux {

/// Checks that `messages` is an array of objects with a role, and changes what this template would
/// fail on or leave out; what it takes stays as it is:
/// - parts of content become text, or text a part; null or absent content becomes "";
/// - a developer is the system, and a late system message a part of the first one; where the
/// template
///   has no such role a system message is a part of the next user's;
/// - arguments of calls become an object, or JSON text;
/// - reasoning under any of its names (reasoning_content, thinking, reasoning) is given as
///   reasoning_content and thinking.
/// Fails with kInvalidArgument, naming the message by its number.
Status normalise_messages(Json& messages, const TemplateCapabilities& takes);

}  // namespace moeflux
