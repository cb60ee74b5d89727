// A line for each request of a server: method, path, status, tokens and seconds, and no texts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "serve/wire/exchange.h"

namespace moeflux {

/// Passes an answer on to `response` and tells `log` one line when it has ended:
/// "POST /v1/completions 200, 12 + 34 tokens, 0.512 s". An answer that nobody ended is "closed".
/// `log` may be called from any thread.
std::shared_ptr<serve::Response> logged(const serve::Request& request,
                                        std::shared_ptr<serve::Response> response,
                                        std::function<void(const std::string& line)> log);

/// The line of a request that the transport answered by itself; see
/// HttpServerOptions::on_own_answer. "POST /v1/completions 401 refused: no valid API key, ...".
std::string own_answer_line(const serve::Request& request, int status, std::string_view reason);

}  // namespace moeflux
