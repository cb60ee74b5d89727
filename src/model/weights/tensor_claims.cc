#include "model/weights/tensor_claims.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <unordered_set>

#include "base/format.h"

namespace moeflux {
namespace {

// Ignored in any family: recomputed from the config, written by old exporters.
bool is_derived(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

// Scales of caches in 8 bits, as Model Optimizer, compressed-tensors and Quark call them. Caches
// here have types of their own.
bool is_of_a_cache(std::string_view name) {
  constexpr std::array<std::string_view, 8> kEndings = {".k_scale",
                                                        ".v_scale",
                                                        ".q_scale",
                                                        ".kv_scale",
                                                        ".k_proj.output_scale",
                                                        ".v_proj.output_scale",
                                                        ".q_proj.output_scale",
                                                        ".prob_output_scale"};
  return std::ranges::any_of(kEndings, [&](std::string_view end) { return name.ends_with(end); });
}

// Words in the names of modules beside the text model, and what begins others. Only components in
// front of a number are looked at: what is in a layer is the text's.
constexpr std::array<std::string_view, 13> kOtherWords = {
    "vision", "visual",   "audio",     "image",        "video",        "speech", "projector",
    "talker", "code2wav", "vit_large", "patch_merger", "mm_projector", "aligner"};
constexpr std::array<std::string_view, 5> kOtherBeginnings = {"mtp_", "vit_", "nextn", "draft_",
                                                              "sam_model"};
constexpr std::array<std::string_view, 3> kOtherComponents = {"mtp", "vit", "eagle"};

bool is_beside_text(std::string_view component) {
  const auto has = [&](std::string_view word) {
    return component.find(word) != std::string_view::npos;
  };
  const auto begins = [&](std::string_view word) { return component.starts_with(word); };
  return std::ranges::any_of(kOtherWords, has) || std::ranges::any_of(kOtherBeginnings, begins) ||
         std::ranges::find(kOtherComponents, component) != kOtherComponents.end();
}

// Names of text models in wrappers, and of modules that only a text model has: beside a wrapped
// text model, these are not of another part but of a second text.
constexpr std::array<std::string_view, 3> kTextNames = {"language_model", "text_model", "llm"};
constexpr std::array<std::string_view, 4> kTextModules = {"embed_tokens", "layers", "norm",
                                                          "lm_head"};

/// The first component beside the wrapped text model; empty where `name` is of a text model.
std::string part_beside(std::string_view name, std::string_view root) {
  if (root.empty() || name.starts_with(root)) return {};
  constexpr std::string_view kModel = "model.";
  const size_t begin = name.starts_with(kModel) ? kModel.size() : 0;
  const size_t end = std::min(name.find('.', begin), name.size());
  const std::string_view first = name.substr(begin, end - begin);
  const auto is_first = [&](std::string_view word) { return word == first; };
  if (std::ranges::any_of(kTextModules, is_first) || std::ranges::any_of(kTextNames, is_first)) {
    return {};
  }
  return std::string(name.substr(0, end));
}

/// Step-3.5 has three, MiMo-V2 as many.
constexpr int64_t kDraftLayersMax = 4;

/// The first twenty and how many more there are.
std::string first_of(std::span<const std::string> texts, std::string_view separator) {
  constexpr size_t kNamedMax = 20;
  std::string all;
  for (const std::string& text : texts.first(std::min(texts.size(), kNamedMax))) {
    if (!all.empty()) all += separator;
    all += text;
  }
  if (texts.size() > kNamedMax) {
    all += formatted("{}and {} more", separator, texts.size() - kNamedMax);
  }
  return all;
}

}  // namespace

std::string text_root(const TensorIndex& index, const NameScheme& scheme) {
  const std::string table = rename_parts("embed_tokens.weight", scheme.renamed);
  for (const std::string& prefix : scheme.prefixes) {
    if (index.find(prefix + table) == nullptr) continue;
    for (const std::string_view name : kTextNames) {
      const std::string component = formatted(".{}.", name);
      const size_t at = formatted(".{}", prefix).find(component);
      if (at != std::string::npos) return prefix.substr(0, at + component.size() - 1);
    }
    return {};
  }
  return {};
}

std::string left_out_part(std::string_view name, const NameScheme& scheme, std::string_view root) {
  std::string_view before;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view component = name.substr(begin, end - begin);
    const std::string part(name.substr(0, end));
    int64_t number = 0;
    const char* const last = component.data() + component.size();
    const auto parsed = std::from_chars(component.data(), last, number);
    if (parsed.ec == std::errc() && parsed.ptr == last) {
      const int64_t first = scheme.first_draft_layer;
      const bool drafts = first >= 0 && number >= first && number < first + kDraftLayersMax;
      return before == "layers" && drafts ? part : part_beside(name, root);
    }
    if (is_beside_text(component)) return part;
    before = component;
    begin = end + 1;
  }
  return part_beside(name, root);
}

std::vector<std::string> left_out_parts(const TensorIndex& index, const NameScheme& scheme) {
  const std::string root = text_root(index, scheme);
  std::set<std::string> parts;
  for (const auto& item : index.entries()) {
    if (std::string part = left_out_part(item.first, scheme, root); !part.empty()) {
      parts.insert(std::move(part));
    }
  }
  return {parts.begin(), parts.end()};
}

std::string rename_parts(std::string_view name,
                         const std::vector<std::pair<std::string, std::string>>& renamed) {
  std::string all = formatted(".{}.", name);
  for (const auto& [part, own] : renamed) {
    const size_t at = all.find(formatted(".{}.", part));
    if (at != std::string::npos) all.replace(at + 1, part.size(), own);
  }
  return all.substr(1, all.size() - 2);
}

std::string TensorClaims::full_name(std::string_view canonical) const {
  const std::string name = rename_parts(canonical, scheme_.renamed);
  const auto find = [&](const std::string& own) -> std::string {
    for (const std::string& prefix : scheme_.prefixes) {
      if (index_.find(prefix + own) != nullptr) return prefix + own;
    }
    return {};
  };
  std::string found = find(name);
  if (found.empty() && !scheme_.otherwise.empty()) {
    found = find(rename_parts(name, scheme_.otherwise));
  }
  if (!found.empty()) return found;
  return (scheme_.prefixes.empty() ? std::string() : scheme_.prefixes.front()) + name;
}

bool TensorClaims::has(std::string_view canonical) const {
  if (index_.find(full_name(canonical)) != nullptr) return true;
  const std::string name = rename_parts(canonical, scheme_.renamed);
  const auto names_it = [&](const auto& item) {
    const std::string& gate = item.second.layout.gate_tensor;
    const auto spelled_with = [&](const std::string& prefix) { return gate == prefix + name; };
    return gate == name ||
           std::any_of(scheme_.prefixes.begin(), scheme_.prefixes.end(), spelled_with);
  };
  return std::any_of(index_.packed_layers().begin(), index_.packed_layers().end(), names_it);
}

const TensorEntry* TensorClaims::claim(const std::string& full_name) {
  const TensorEntry* entry = index_.find(full_name);
  if (entry == nullptr) {
    fail_missing(full_name);
  } else {
    claimed_.insert(full_name);
  }
  return entry;
}

Status TensorClaims::failures() const {
  std::vector<std::string> what;
  // Want of memory has the same words for every tensor.
  std::unordered_set<std::string_view> said;
  for (const Error& error : errors_) {
    if (said.insert(error.message()).second) what.push_back(error.message());
  }
  const ErrorCode code = errors_.empty() ? ErrorCode::kNotFound : errors_.front().code();
  if (missing_.size() == 1) {
    what.push_back(formatted("tensor {} is missing from the checkpoint", missing_.front()));
  } else if (!missing_.empty()) {
    what.push_back(formatted("{} tensors are missing from the checkpoint: {}", missing_.size(),
                             first_of(missing_, ", ")));
  }
  return Error(code, first_of(what, "; "));
}

// AutoGPTQ's first releases wrote a bias beside every matrix.
bool TensorClaims::adds_nothing(std::string_view name, const TensorEntry& entry) const {
  constexpr std::string_view kBias = ".bias";
  constexpr uint64_t kBytesMax = uint64_t{1} << 24;
  if (!name.ends_with(kBias) || entry.size_bytes > kBytesMax) return false;
  const std::string_view module = name.substr(0, name.size() - kBias.size());
  if (!claimed_.contains(formatted("{}.qweight", module))) return false;
  std::vector<std::byte> bytes(entry.size_bytes);
  return read_tensor(index_, entry, bytes).ok() &&
         std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

Status TensorClaims::unclaimed() const {
  const std::string root = text_root(index_, scheme_);
  std::vector<std::string> names;
  for (const auto& item : index_.entries()) {
    const std::string& name = item.first;
    const bool ignored =
        item.second.size_bytes == 0 || is_derived(name) || is_of_a_cache(name) ||
        adds_nothing(name, item.second) || !left_out_part(name, scheme_, root).empty() ||
        std::any_of(scheme_.ignored_prefixes.begin(), scheme_.ignored_prefixes.end(),
                    [&](const std::string& p) { return name.starts_with(p); });
    if (!ignored && !claimed_.contains(name)) names.push_back(name);
  }
  if (names.empty()) return {};
  if (names.size() == 1) {
    return make_error(ErrorCode::kUnsupported,
                      "tensor {} is in the checkpoint and no part of the model uses it",
                      names.front());
  }
  return make_error(ErrorCode::kUnsupported,
                    "{} tensors are in the checkpoint and no part of the model uses them: {}",
                    names.size(), first_of(names, ", "));
}

Status TensorClaims::check_pack_is_used() const {
  for (const auto& [number, packed] : index_.packed_layers()) {
    if (packed_claimed_.contains(number)) continue;
    return make_error(ErrorCode::kUnsupported,
                      "{} has experts of layer {}, which no part of the model uses",
                      kExpertPackName, number);
  }
  return {};
}

Status TensorClaims::finish() const {
  if (!errors_.empty() || !missing_.empty()) return failures();
  MF_RETURN_IF_ERROR(unclaimed());
  return check_pack_is_used();
}

}  // namespace moeflux
