// The options of a service: how a model is served, and what is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/scheduler.h"
#include "serve/kept/resumable_streams.h"
#include "serve/page_options.h"
#include "serve/request/chat_request.h"

namespace moeflux::serve {

struct ServiceOptions {
  std::string model_name;  // what clients call it; empty: the folder's name
  /// Further names; "*" is any. Names that differ by case, folder, ".gguf" or ":latest" are one.
  std::vector<std::string> aliases = {};
  std::optional<std::string> template_text;  // in place of the model's own
  std::string template_file = {};            // where it is from, for messages
  bool reranks = false;                      // see Reranker::create()
  RequestDefaults defaults;                  // what requests say nothing of
  SchedulerOptions scheduler;
  /// Leaves out of Anthropic's prompts what is new in every request; see prompt_nonces.h.
  bool steady_prompts = true;

  // --- The service's, whatever models it has ---

  /// Where OpenAI's responses and conversations are kept, each in a folder in it; empty: in memory,
  /// until the service ends.
  std::string folder = {};
  ShelfLimits responses = {.bytes_max = uint64_t{64} << 20, .count_max = 4096};
  /// Nobody's conversation makes room for another's.
  ShelfLimits conversations = {
      .bytes_max = uint64_t{64} << 20, .count_max = 4096, .makes_room = false};
  ResumableLimits streams = {};
  /// Nobody's chat makes room for another's.
  ShelfLimits chats = {.bytes_max = uint64_t{64} << 20, .count_max = 4096, .makes_room = false};
  /// Told, once for each, of tools that requests have and nobody here can run and of names that
  /// nobody reads, and of what is kept and damaged or could not be kept. Any thread.
  std::function<void(const std::string& line)> on_note = {};
  PageOptions page = {};
};

}  // namespace moeflux::serve
