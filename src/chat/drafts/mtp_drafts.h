// Drafts by the model's own layer that predicts further tokens (multi-token prediction, MTP). Its
// keys are those of the text's states, so it has nothing to catch up with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "chat/drafts/draft_source.h"

namespace moeflux {

/// The layer is fed its own result for each further token, of which each is less likely.
constexpr int64_t kMtpTokensMax = 3;

/// For DraftOptions::make_source: at most so many tokens a draft, by Engine::draft(). The engines
/// of the sessions that ask must have the layer.
std::function<std::unique_ptr<DraftSource>()> mtp_source(int64_t tokens_max);

}  // namespace moeflux
