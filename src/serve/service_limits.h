// Refuses requests before a service computes, so that nobody's request costs others their time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/json.h"
#include "chat/open_model.h"
#include "serve/wire/api_error.h"

namespace moeflux::serve {

/// Values of a body's JSON. A prompt of so many token ids is longer than any context.
inline constexpr size_t kBodyValuesMax = size_t{1} << 21;
/// Bodies of requests that wait for a constraint to be compiled; a small one counts as
/// kPutOffBytesMin, for what its JSON takes.
inline constexpr size_t kPutOffBytesMax = size_t{48} << 20;
inline constexpr size_t kPutOffBytesMin = size_t{512} << 10;

/// A text of more bytes is not what the context takes. Every token spells a vocabulary's longest at
/// most, and what is normalized before becomes shorter by a factor that is below four: the bytes of
/// three letters of Hangul become one syllable.
size_t text_bytes_max(const OpenModel& model);

size_t text_bytes(const Json& json);

/// The error for a body that has more messages than the context tokens, before they are read.
std::optional<ApiError> too_many_messages(const Json& body, int64_t context);

ApiError draining();

}  // namespace moeflux::serve
