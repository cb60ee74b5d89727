#include "cli/serve/served_model.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "chat/chat_format.h"
#include "chat/open_model.h"
#include "chat/session.h"
#include "cli/quick_notes.h"
#include "cli/template_option.h"

namespace moeflux {
namespace {

constexpr uint64_t kResponseBytesMax = 256 * kMiB;  // of OpenAI's that are kept on a drive

// As the option's check allows.
Sharing sharing_of(const std::string& name) {
  if (name == "steps") return Sharing::kSteps;
  return name == "slices" ? Sharing::kSlices : Sharing::kAuto;
}

// Before the weights are read: that may take minutes. A model continues texts without its template.
Status check_chats(const std::string& directory, const ModelText& text,
                   const std::optional<GivenTemplate>& given, const Log& log) {
  if (!text.tokenizer.ok()) return text.tokenizer.error();
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  const auto format = ChatFormat::load(*source, *text.tokenizer, given);
  if (format.ok()) {
    check_question(**format, log);
    return {};
  }
  if (given) return format.error();
  log.warning(formatted("{}; chats are refused, completions work", format.error().message()));
  return {};
}

// Once it is open, the memory of the whole machine tells whether there is enough.
std::function<HostMemory()> bounded_memory(uint64_t bytes,
                                           std::shared_ptr<std::atomic<bool>> ends) {
  return [bytes, ends = std::move(ends)] {
    HostMemory memory = query_host_memory();
    if (*ends) return memory;
    if (memory.total_bytes == 0) memory = {.total_bytes = bytes, .available_bytes = bytes};
    memory.available_bytes = std::min(memory.available_bytes, bytes);
    return memory;
  };
}

}  // namespace

serve::ServiceOptions service_options(const ServeOptions& options) {
  serve::ServiceOptions service{
      .model_name = options.model_name.empty() ? options.model.hub_name : options.model_name,
      .aliases = options.aliases,
      .reranks = options.reranks,
      .defaults = {.sampler = {}, .reasoning_tokens_max = options.reasoning_budget},
      .scheduler = {.queue_max = options.queue_max,
                    .active_max = options.active_max().value_or(kUsualSequences),
                    .sharing = sharing_of(options.share)},
      .steady_prompts = !options.prompts_as_sent,
      .folder = options.states_folder,
      .on_note = [notes = std::make_shared<QuickNotes>(STDERR_FILENO),
                  &log = *options.model.log](const std::string& line) {
        if (log.shows(LogLevel::kInfo)) notes->add(line);
      }};
  if (!options.states_folder.empty()) service.responses.bytes_max = kResponseBytesMax;
  return service;
}

Result<serve::ServedModel> open_served_model(const ServeOptions& options,
                                             const ServedLimits& limits) {
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(ModelText text, load_model_text(directory));
  set_pooling(options.pooling, text);
  serve::ServiceOptions service = service_options(options);
  MF_ASSIGN_OR_RETURN(service.defaults.sampler,
                      sampler_options(options.sampling, text.defaults.sampler));
  if (options.sampling.draws_seed()) service.defaults.sampler.seed = 0;  // anew for each request
  MF_ASSIGN_OR_RETURN(const auto given, given_template(options.template_file));
  MF_RETURN_IF_ERROR(check_chats(directory, text, given, *options.model.log));
  if (given) {
    service.template_text = given->text;
    service.template_file = given->place;
  }
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options.model));
  engine.step_sequences = service.scheduler.active_max;  // more than these take what remains
  if (!options.states_folder.empty()) {
    engine.prefix_cache_directory = options.states_folder;
    MF_ASSIGN_OR_RETURN(engine.prefix_cache_bytes, parse_bytes(options.states_size));
  }
  const auto is_open = std::make_shared<std::atomic<bool>>(false);
  if (limits.memory_bytes < UINT64_MAX) {
    engine.read_memory = bounded_memory(limits.memory_bytes, is_open);
  }
  if (limits.progress) {
    engine.load_progress = [&limits](uint64_t done, uint64_t total) {
      limits.progress(done, total);
      return !limits.stop.stop_requested();
    };
  }
  MF_ASSIGN_OR_RETURN(auto model,
                      open_model(options.model, directory, std::move(engine), std::move(text)));
  MF_RETURN_IF_ERROR(check_sampler(service.defaults.sampler, model->engine->spec().vocab_size));
  *is_open = true;
  note_context(options.model, *model);
  if (!options.active_max()) {
    service.scheduler.active_max = static_cast<int>(usual_sequences(*model->engine));
    options.model.log->note(formatted("up to {} requests run at the same time (--parallel)",
                                      service.scheduler.active_max));
  }
  return serve::ServedModel{.model = std::move(model), .options = std::move(service)};
}

}  // namespace moeflux
