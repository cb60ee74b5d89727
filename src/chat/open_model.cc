#include "chat/open_model.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "chat/drafts/draft_model.h"
#include "chat/drafts/mtp_drafts.h"
#include "engine/device_gain.h"
#include "grammar/token_tree.h"
#include "load/model_loader.h"

namespace moeflux {
namespace {

void warn(const OpenModelOptions& options, std::string line) {
  // A key is any text that a file can spell.
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  options.on_warning(line);
}

bool drafts_itself(const OpenModelOptions& options) {
  return options.drafts.mtp_tokens > 0 && options.drafts.mode != DraftMode::kOff;
}

Status tell_remarks(const std::string& directory, const OpenModelOptions& options) {
  if (!options.on_warning) return {};
  MF_ASSIGN_OR_RETURN(std::vector<std::string> lines,
                      opening_remarks(directory, {.draft_layer = drafts_itself(options)}));
  for (std::string& line : lines) warn(options, std::move(line));
  return {};
}

// `auto` is all GPUs of one kind where the planner expects a gain, else one device.
Result<std::unique_ptr<Device>> open_device_for(const std::string& directory,
                                                const OpenModelOptions& options) {
  const EngineOptions& engine = options.engine;
  DeviceOptions every = options.device;
  every.name = "cuda:all";
  const bool may_be_several = options.device.name == "auto" && !engine.stream_dense &&
                              choose_device(options.device).name.starts_with("cuda") &&
                              count_cuda_gpus() > 1;
  if (!may_be_several) return open_device(options.device);
  Result<std::unique_ptr<Device>> all = open_device(every);
  if (!all.ok() || (*all)->bits_key() != (*all)->part(0).bits_key()) {
    return open_device(options.device);
  }
  MF_ASSIGN_OR_RETURN(const bool gains, gains_from_all_parts(directory, **all, engine));
  if (!gains) return open_device(options.device);
  if (engine.on_forecast) {
    engine.on_forecast(formatted("device auto: {}, which share the layers", (*all)->name()));
  }
  return all;
}

}  // namespace

void OpenModel::publish(uint64_t evaluated_tokens, uint64_t evaluate_us) {
  const ExpertStats experts = engine->expert_stats();
  const uint64_t capacity_bytes = engine->experts().capacity_bytes();
  std::shared_ptr<ExpertMap> map;
  if (map_is_wanted_.exchange(false)) map = std::make_shared<ExpertMap>(engine->expert_map());
  const std::lock_guard lock(counters_mutex_);
  if (map) {
    map->number = expert_map_ ? expert_map_->number + 1 : 1;
    expert_map_ = std::move(map);
  }
  counters_.experts = experts;
  counters_.expert_capacity_bytes = capacity_bytes;
  counters_.evaluated_tokens += evaluated_tokens;
  counters_.evaluate_us += evaluate_us;
}

DraftPrice OpenModel::draft_price() const {
  const std::lock_guard lock(counters_mutex_);
  return draft_price_;
}

void OpenModel::publish(const DraftPrice& price) {
  const std::lock_guard lock(counters_mutex_);
  draft_price_ = price;
}

ModelCounters OpenModel::counters() const {
  const std::lock_guard lock(counters_mutex_);
  return counters_;
}

std::shared_ptr<const ExpertMap> OpenModel::expert_map() {
  map_is_wanted_ = true;
  const std::lock_guard lock(counters_mutex_);
  return expert_map_;
}

Result<std::shared_ptr<const TokenTree>> OpenModel::token_tree() {
  if (!text.tokenizer.ok()) return text.tokenizer.error();
  const std::lock_guard lock(token_tree_mutex_);
  if (token_tree_ == nullptr) {
    MF_ASSIGN_OR_RETURN(token_tree_, make_token_tree(*text.tokenizer));
  }
  return token_tree_;
}

Result<std::shared_ptr<const Constraint>> OpenModel::compile(const OutputConstraint& constraint) {
  MF_RETURN_IF_ERROR(check_dialect(constraint));
  MF_ASSIGN_OR_RETURN(const std::shared_ptr<const TokenTree> tokens, token_tree());
  return Constraint::compile(tokens, constraint, constraint_limits_);
}

Result<std::shared_ptr<OpenModel>> open_model(const std::string& directory,
                                              const OpenModelOptions& options, ModelText text) {
  MF_RETURN_IF_ERROR(tell_remarks(directory, options));
  if (options.on_warning && text.tokenizer.ok() && !text.tokenizer->warning().empty()) {
    warn(options, formatted("{}: {}", directory, text.tokenizer->warning()));
  }
  EngineOptions engine = options.engine;
  DraftOptions drafts = options.drafts;
  std::shared_ptr<DraftModel> drafting;
  // Bytes that it has still to take, while the other one is opened.
  const auto to_come = std::make_shared<uint64_t>(0);
  if (!drafts.model.empty() && drafts.mtp_tokens > 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} and the model's own layer are both to draft, expected one of them "
                      "(see --draft-model, --draft-mtp)",
                      drafts.model);
  }
  if (!drafts.on_failure) drafts.on_failure = options.on_warning;
  if (drafts_itself(options)) drafts.make_source = mtp_source(drafts.mtp_tokens);
  if (!drafts.model.empty() && drafts.mode != DraftMode::kOff && text.tokenizer.ok()) {
    MF_ASSIGN_OR_RETURN(drafting, DraftModel::open(options, directory, *text.tokenizer));
    drafts.make_source = [drafting] { return drafting->make_source(); };
    *to_come = drafting->bytes_to_come();
    engine.read_memory = [read = options.engine.read_memory, to_come] {
      HostMemory memory = read();
      memory.available_bytes -= std::min(memory.available_bytes, *to_come);
      return memory;
    };
  }
  auto open = std::make_shared<OpenModel>();
  open->directory = directory;
  open->text = std::move(text);
  MF_ASSIGN_OR_RETURN(open->device, open_device_for(directory, options));
  if (open->device->free_bytes()) {
    MF_ASSIGN_OR_RETURN(open->helper, open_helper(options.device));
    engine.helper = open->helper.get();
  }
  engine.on_warning = options.on_warning;
  engine.draft_layer = drafts_itself(options);
  Result<std::unique_ptr<Engine>> opened = Engine::open(directory, *open->device, engine);
  if (!opened.ok() && drafting != nullptr &&
      opened.error().code() == ErrorCode::kResourceExhausted) {
    return opened.error().with_context(
        formatted("{} beside {}, which drafts for it", directory, drafts.model));
  }
  MF_ASSIGN_OR_RETURN(open->engine, std::move(opened));
  *to_come = 0;
  open->device_description = open->device->description();
  open->expert_io = std::string(expert_io(*open->engine));
  open->turn_timeout_ms = options.turn_timeout_ms;
  open->should_stop = options.should_stop;
  open->drafts = std::move(drafts);
  open->constraint_limits_ = options.constraints;
  open->publish(0, 0);
  return open;
}

}  // namespace moeflux
