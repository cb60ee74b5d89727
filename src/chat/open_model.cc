#include "chat/open_model.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "chat/drafts/draft_model.h"
#include "chat/drafts/mtp_drafts.h"
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

bool holds_all_experts(const Engine& engine) {
  const ExpertMap map = engine.expert_map();
  const std::vector<ExpertLayer>& layers = engine.loaded().experts.layers;
  for (size_t l = 0; l < layers.size(); ++l) {
    const auto first = map.places.begin() + static_cast<ptrdiff_t>(l) * map.num_experts;
    const auto is_near = [](ExpertPlace place) { return place == ExpertPlace::kDevice; };
    if (!std::all_of(first, first + layers[l].num_experts, is_near)) return false;
  }
  return true;
}

// Text on one GPU that holds a model is faster than on several, which work in turn. Where it does
// not, their memory holds more of the experts.
void tell_other_gpus(const OpenModel& open, const OpenModelOptions& options) {
  if (options.device.name != "auto" || !options.on_warning || !open.device->free_bytes()) return;
  if (holds_all_experts(*open.engine)) return;
  if (const size_t gpus = count_cuda_gpus(); gpus > 1) {
    warn(options, formatted("device auto took {} of {} GPUs, which does not hold all experts; with "
                            "--device cuda:all the others hold some as well",
                            open.device->name(), gpus));
  }
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
  MF_ASSIGN_OR_RETURN(open->device, open_device(options.device));
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
  open->drafts = std::move(drafts);
  open->constraint_limits_ = options.constraints;
  open->publish(0, 0);
  tell_other_gpus(*open, options);
  return open;
}

}  // namespace moeflux
