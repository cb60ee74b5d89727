// Beginning and reading of answers, for functions of moeflux.h.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "library/handles.h"
#include "moeflux/moeflux.h"
#include "serve/wire/exchange.h"

namespace moeflux {

/// The caller's own hold on what the handle has, which another thread may close meanwhile.
Result<std::shared_ptr<ServiceHost>> hold_service(const mf_service* service);

/// Fails as ServiceHost::submit() does.
Result<std::unique_ptr<mf_answer>> begin_answer(std::shared_ptr<ServiceHost> host,
                                                const serve::Request& request, mf_ready_fn on_ready,
                                                void* user_data);

/// Waits for the next piece of the answer, which then has it. Fails as AnswerBox::take() does.
Status take_piece(mf_answer& answer, int64_t timeout_ms);

}  // namespace moeflux
