// Parts of messages. Images, audio and files in conversations with models that read text alone:
// what stands in their place, and what is said where the question itself holds one. And what stands
// in the place of what another server made for itself.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "serve/wire/api_error.h"

namespace moeflux::serve {

/// The type of a part, block or item, which it lends; empty where it has none.
std::string_view part_type(const Json& part);
/// A part of a message that is text, in the words of chat templates.
Json text_part(std::string text);

/// "image", "audio", "video" or "file" for a part, block or item of such a type in any interface's
/// words ("image_url", "input_image", "document"); empty for text and for all else.
std::string_view media_kind(std::string_view type);
/// The same of the part itself; empty too where it has no type.
std::string_view media_kind_of(const Json& part);

/// "[image left out: this model reads text alone]"
std::string left_out_line(std::string_view kind);

/// "[web_search_call left out: made by another server for itself]", for a part, block or item of
/// such a type.
std::string left_out_foreign_line(std::string_view type);

/// An image, or another kind, in the last message of the user, which is asked about: `path` is its
/// field. Earlier ones become left_out_line(), so that a conversation can go on.
ApiError media_in_question(std::string path, std::string_view kind);

}  // namespace moeflux::serve
