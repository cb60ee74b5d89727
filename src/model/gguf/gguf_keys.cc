#include "model/gguf/gguf_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

// No model comes near; the bounds keep a hostile file from asking for work.
constexpr int64_t kBlocksMax = 1024;
constexpr int64_t kReadFloatsMax = 65536;
constexpr int64_t kNumberMax = int64_t{1} << 30;  // products of two of them do not overflow

// Names that Ollama's converter gives, or has given, to keys of llama.cpp's; the last is that of
// llama.cpp's own first files.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kOtherNames = {{
    {"expert_weights_norm", "norm_top_k_prob"},
    {"rope.freq_base_swa", "rope.swa.freq_base"},
    {"rope.dimension_count_swa", "rope.swa.dimension_count"},
    {"rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"},
    {"rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"},
    {"rope.dimension_sections", "rope.mrope_section"},
    {"rope.dimension_sections", "mrope_sections"},
    {"attention.sliding_window_pattern", "attention.layer_types"},
    {"rope.scaling.factor", "rope.scale_linear"},
}};

}  // namespace

GgufKeys::GgufKeys(const gguf::Container& model) : model_(model) {
  for (const gguf::TensorInfo& tensor : model.tensors()) tensors_.emplace(tensor.name, &tensor);
}

std::string GgufKeys::full(std::string_view key) const {
  std::string name = formatted("{}.{}", model_.architecture(), key);
  if (model_.keys().find(name) != nullptr) return name;
  for (const auto& [usual, other] : kOtherNames) {
    if (usual != key) continue;
    std::string known = formatted("{}.{}", model_.architecture(), other);
    if (model_.keys().find(known) != nullptr) return known;
  }
  return name;
}

void GgufKeys::ignore(std::string_view key) {
  asked_.insert(full(key));
  for (const auto& [usual, other] : kOtherNames) {
    if (usual == key) asked_.insert(formatted("{}.{}", model_.architecture(), other));
  }
}

const gguf::Value* GgufKeys::take(std::string_view key) {
  ignore(key);
  return find(key);
}

void GgufKeys::fail(ErrorCode code, std::string message) {
  if (status_.ok()) status_ = Error(code, std::move(message));
}

void GgufKeys::fail_type(std::string_view key, const gguf::Value& value,
                         std::string_view expected) {
  fail(ErrorCode::kCorruption, formatted("key {} is of type {}, expected {}", full(key),
                                         gguf::value_type_name(value.type), expected));
}

double GgufKeys::finite(std::string_view what, double number) {
  if (std::isfinite(number)) return number;
  fail(ErrorCode::kCorruption, formatted("{} is {}, expected a finite number", what, number));
  return 0.0;
}

int64_t GgufKeys::in_range(std::string_view key, int64_t number) {
  if (number >= 0 && number <= kNumberMax) return number;
  fail(ErrorCode::kCorruption,
       formatted("key {} is {}, expected 0 to {}", full(key), number, kNumberMax));
  return 0;
}

int64_t GgufKeys::as_int(std::string_view key, const gguf::Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value.data)) return in_range(key, *number);
  if (value.type != gguf::ValueType::kArray) {
    fail_type(key, value, "a whole number");
    return 0;
  }
  const std::vector<int64_t> all = of_blocks(key);
  int64_t found = 0;
  for (const int64_t number : all) {
    if (number == 0 || number == found) continue;
    if (found != 0) {
      fail(ErrorCode::kUnsupported,
           formatted("key {} has {} and {}, which is not supported for this architecture",
                     full(key), found, number));
    }
    found = number;
  }
  return found;
}

bool GgufKeys::has_array(std::string_view key) const {
  const gguf::Value* value = find(key);
  return value != nullptr && value->type == gguf::ValueType::kArray;
}

int64_t GgufKeys::require_int(std::string_view key) {
  if (const gguf::Value* value = take(key)) return as_int(key, *value);
  fail(ErrorCode::kCorruption, formatted("key {} is missing", full(key)));
  return 0;
}

int64_t GgufKeys::int_or(std::string_view key, int64_t fallback) {
  const gguf::Value* value = take(key);
  return value == nullptr ? fallback : as_int(key, *value);
}

double GgufKeys::require_number(std::string_view key) {
  if (!has(key)) fail(ErrorCode::kCorruption, formatted("key {} is missing", full(key)));
  return number_or(key, 0.0);
}

double GgufKeys::number_or(std::string_view key, double fallback) {
  const gguf::Value* value = take(key);
  if (value == nullptr) return fallback;
  if (const auto* number = std::get_if<double>(&value->data)) {
    return finite(formatted("key {}", full(key)), *number);
  }
  if (const auto* whole = std::get_if<int64_t>(&value->data)) return static_cast<double>(*whole);
  fail_type(key, *value, "a number");
  return fallback;
}

bool GgufKeys::bool_or(std::string_view key, bool fallback) {
  const gguf::Value* value = take(key);
  if (value == nullptr) return fallback;
  if (const auto* flag = std::get_if<bool>(&value->data)) return *flag;
  fail_type(key, *value, "a bool");
  return fallback;
}

std::string GgufKeys::text_or(std::string_view key, std::string_view fallback) {
  const gguf::Value* value = take(key);
  if (value == nullptr) return std::string(fallback);
  const auto* text = std::get_if<std::string>(&value->data);
  const auto is_shown = [](char c) { return c >= ' ' && c < '\x7f'; };
  // Families repeat such texts in their messages.
  if (text != nullptr && std::all_of(text->begin(), text->end(), is_shown)) return *text;
  fail_type(key, *value, "a short string of ASCII");
  return std::string(fallback);
}

std::vector<int64_t> GgufKeys::of_blocks(std::string_view key, bool longer) {
  const int64_t blocks = num_blocks();
  const gguf::Value* value = take(key);
  if (value == nullptr) {
    fail(ErrorCode::kCorruption, formatted("key {} is missing", full(key)));
    return std::vector<int64_t>(static_cast<size_t>(blocks));
  }
  if (value->type != gguf::ValueType::kArray) {
    return std::vector<int64_t>(static_cast<size_t>(blocks), as_int(key, *value));
  }
  const auto& stored = std::get<gguf::Stored>(value->data);
  const uint64_t most = static_cast<uint64_t>(longer ? kBlocksMax : blocks);
  const auto least = static_cast<uint64_t>(num_layers());  // blocks that predict may have none
  if (stored.count < least || stored.count > most) {
    fail(ErrorCode::kCorruption, formatted("key {} has {} elements, expected {}, one a block",
                                           full(key), stored.count, blocks));
    return std::vector<int64_t>(static_cast<size_t>(blocks));
  }
  Result<std::vector<int64_t>> numbers = model_.keys().ints(full(key));
  if (numbers.ok()) {
    numbers->resize(static_cast<size_t>(blocks));
    for (int64_t& number : *numbers) number = in_range(key, number);
    return std::move(numbers).value();
  }
  fail(numbers.error().code(), numbers.error().message());
  return std::vector<int64_t>(static_cast<size_t>(blocks));
}

std::vector<int64_t> GgufKeys::ints(std::string_view key, uint64_t most) {
  const gguf::Value* value = take(key);
  if (value == nullptr) return {};
  const auto* stored = std::get_if<gguf::Stored>(&value->data);
  if (value->type != gguf::ValueType::kArray || stored == nullptr || stored->count > most) {
    fail_type(key, *value, formatted("an array of at most {} whole numbers", most));
    return {};
  }
  Result<std::vector<int64_t>> numbers = model_.keys().ints(full(key));
  if (numbers.ok()) return std::move(numbers).value();
  fail(numbers.error().code(), numbers.error().message());
  return {};
}

std::vector<double> GgufKeys::numbers_of_blocks(std::string_view key) {
  const auto blocks = static_cast<size_t>(num_blocks());
  const gguf::Value* value = take(key);
  if (value == nullptr || value->type != gguf::ValueType::kArray) {
    return std::vector<double>(blocks, require_number(key));
  }
  Result<std::vector<double>> numbers = model_.keys().numbers(full(key));
  const auto least = static_cast<size_t>(num_layers());  // as of_blocks()
  if (numbers.ok() && numbers->size() >= least && numbers->size() <= blocks) {
    for (size_t i = 0; i < numbers->size(); ++i) {
      (*numbers)[i] = finite(formatted("key {}: element {}", full(key), i), (*numbers)[i]);
    }
    numbers->resize(blocks, numbers->back());
    return std::move(numbers).value();
  }
  fail(ErrorCode::kCorruption, numbers.ok()
                                   ? formatted("key {} has {} elements, expected {}, one a block",
                                               full(key), numbers->size(), blocks)
                                   : numbers.error().message());
  return std::vector<double>(blocks);
}

void GgufKeys::expect_int(std::string_view key, int64_t supported) {
  const int64_t found = int_or(key, supported);
  if (found == supported) return;
  fail(ErrorCode::kUnsupported,
       formatted("key {} is {}, supported is {}", full(key), found, supported));
}

int64_t GgufKeys::num_blocks() {
  const gguf::Value* value = take("block_count");
  const auto* count = value == nullptr ? nullptr : std::get_if<int64_t>(&value->data);
  if (count != nullptr && *count >= 1 && *count <= kBlocksMax) return *count;
  fail(ErrorCode::kCorruption,
       formatted("key {} is {}, expected 1 to {}", full("block_count"),
                 count == nullptr ? "missing or not a whole number" : std::to_string(*count),
                 kBlocksMax));
  return 1;
}

int64_t GgufKeys::num_layers() {
  constexpr std::string_view kPredicting = "nextn_predict_layers";
  const int64_t blocks = num_blocks();
  // An array, of a number for each layer, asks for the number of layers.
  if (has_array(kPredicting)) {
    fail_type(kPredicting, *take(kPredicting), "a whole number");
    return blocks;
  }
  const int64_t predicting = int_or(kPredicting, predicting_blocks(blocks));
  if (predicting >= 0 && predicting < blocks) return blocks - predicting;
  fail(ErrorCode::kCorruption, formatted("key {} is {}, expected 0 to {}",
                                         full("nextn_predict_layers"), predicting, blocks - 1));
  return 1;
}

// The last blocks that have tensors of prediction, of which files without the key may have some.
int64_t GgufKeys::predicting_blocks(int64_t blocks) const {
  std::set<int64_t> found;
  for (const gguf::TensorInfo& tensor : model_.tensors()) {
    const std::string_view name = tensor.name;
    if (!name.starts_with("blk.") || name.find(".nextn.") == std::string_view::npos) continue;
    int64_t block = 0;
    const auto [rest, problem] = std::from_chars(name.data() + 4, name.data() + name.size(), block);
    if (problem == std::errc() && *rest == '.') found.insert(block);
  }
  int64_t predicting = 0;
  while (predicting + 1 < blocks && found.contains(blocks - 1 - predicting)) ++predicting;
  return predicting;
}

const gguf::TensorInfo* GgufKeys::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

bool GgufKeys::any_block_has(std::string_view rest) const {
  return std::any_of(model_.tensors().begin(), model_.tensors().end(), [&](const auto& tensor) {
    const std::string_view name = tensor.name;
    if (!name.starts_with("blk.") || !name.ends_with(rest)) return false;
    const size_t dot = name.find('.', 4);
    return dot != std::string_view::npos && name.substr(dot + 1) == rest;
  });
}

std::vector<float> GgufKeys::read_floats(std::string_view name) {
  const gguf::TensorInfo* found = tensor(name);
  const bool fits = found != nullptr && found->shape.num_elements() <= kReadFloatsMax &&
                    found->type->format == QuantFormat::plain(DType::kF32);
  if (!fits) {
    fail(ErrorCode::kCorruption,
         formatted("tensor {} is {}, expected F32 of at most {} elements", name,
                   found == nullptr ? "missing" : found->type->name, kReadFloatsMax));
    return {};
  }
  std::vector<std::byte> bytes(found->size_bytes);
  const Status read = model_.file(found->file).read_at(found->offset_bytes, bytes);
  if (!read.ok()) fail(read.error().code(), read.error().message());
  std::vector<float> numbers(static_cast<size_t>(found->shape.num_elements()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float number = load_float(bytes.data(), static_cast<int64_t>(i), DType::kF32);
    numbers[i] = static_cast<float>(finite(formatted("tensor {}: element {}", name, i), number));
  }
  return numbers;
}

std::vector<std::string> GgufKeys::unread() const {
  std::vector<std::string> names;
  const std::string prefix = model_.architecture() + ".";
  for (const auto& item : model_.keys().values()) {
    if (item.first.starts_with(prefix) && !asked_.contains(item.first)) {
      names.push_back(item.first.substr(prefix.size()));
    }
  }
  return names;
}

}  // namespace moeflux
