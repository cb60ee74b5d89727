#include "model/weight_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "model/tiled_read.h"

namespace moeflux {
namespace {

constexpr size_t kBlockBytes = 16 * kMiB;  // small tensors share blocks; larger ones get their own

// The shape without extents of 1: [512, 4, 1] and [512, 1, 4] hold the same bytes as [512, 4].
Shape squeezed(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1) dims.push_back(shape[i]);
  }
  return Shape(dims);
}

// Ignored in any family: recomputed from the config, written by old exporters.
bool is_derived(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

/// The first twenty and how many more there are.
std::string first_of(std::span<const std::string> texts, std::string_view separator) {
  constexpr size_t kNamedMax = 20;
  std::string all;
  for (const std::string& text : texts.first(std::min(texts.size(), kNamedMax))) {
    if (!all.empty()) all += separator;
    all += text;
  }
  if (texts.size() > kNamedMax) {
    all += format("{}and {} more", separator, texts.size() - kNamedMax);
  }
  return all;
}

}  // namespace

WeightStore::WeightStore(const TensorIndex& index, const QuantConfig& quant, Device& device,
                         Options options)
    : index_(index),
      quant_(quant),
      device_(device),
      scheme_(std::move(options.scheme)),
      loading_(options.loading),
      assumed_(options.assumed),
      progress_(std::move(options.progress)) {
  experts_.layers.resize(static_cast<size_t>(options.num_layers));
}

std::string WeightStore::full_name(std::string_view name) const {
  for (const std::string& prefix : scheme_.prefixes) {
    std::string full = prefix + std::string(name);
    if (index_.find(full) != nullptr) return full;
  }
  return (scheme_.prefixes.empty() ? std::string() : scheme_.prefixes.front()) + std::string(name);
}

const TensorEntry* WeightStore::find(std::string_view name) const {
  return index_.find(full_name(name));
}

bool WeightStore::has(std::string_view name) const {
  if (find(name) != nullptr) return true;
  const auto names_it = [&](const auto& item) {
    const std::string& gate = item.second.layout.gate_tensor;
    const auto spelled_with = [&](const std::string& prefix) {
      return gate == prefix + std::string(name);
    };
    return gate == name ||
           std::any_of(scheme_.prefixes.begin(), scheme_.prefixes.end(), spelled_with);
  };
  return std::any_of(index_.packed_layers().begin(), index_.packed_layers().end(), names_it);
}

const TensorEntry* WeightStore::claim(const std::string& name) {
  const TensorEntry* entry = index_.find(name);
  if (entry == nullptr) {
    fail_missing(name);
  } else {
    claimed_.insert(name);
  }
  return entry;
}

void WeightStore::fail(Error error) { errors_.push_back(std::move(error)); }

void WeightStore::fail_missing(const std::string& tensor) { missing_.push_back(tensor); }

bool WeightStore::reads_after(uint64_t stored_bytes) {
  sizes_.stored_bytes += stored_bytes;
  if (loading_ == WeightLoading::kCheckOnly || is_stopped_) return false;
  is_stopped_ = progress_ && !progress_(sizes_.stored_bytes);
  if (is_stopped_) fail(make_error(ErrorCode::kCancelled, "stopped while reading weights"));
  return !is_stopped_;
}

Tensor WeightStore::place(size_t bytes, const Shape& shape, DType dtype) {
  const bool shares_block = bytes <= kBlockBytes / 2;
  const size_t begin = round_up(open_block_used_, 64);
  if (shares_block && open_block_ != nullptr && begin + bytes <= kBlockBytes) {
    open_block_used_ = begin + bytes;
    return Tensor::view(*open_block_, begin, shape, dtype);
  }
  Result<std::unique_ptr<Buffer>> buffer =
      device_.allocate(shares_block ? kBlockBytes : bytes, MemoryKind::kDevice);
  if (!buffer.ok()) {
    fail(buffer.error());
    return {};
  }
  buffers_.push_back(std::move(buffer).value());
  if (shares_block) {
    open_block_ = buffers_.back().get();
    open_block_used_ = bytes;
  }
  return Tensor::view(*buffers_.back(), 0, shape, dtype);
}

Tensor WeightStore::load(const std::string& name, const TensorEntry& entry) {
  const Tensor tensor = place(entry.size_bytes, entry.shape, entry.dtype);
  if (tensor.is_null()) return tensor;
  sizes_.bytes += entry.size_bytes;
  if (!reads_after(entry.size_bytes)) return tensor;
  const Status read = fill(tensor, entry);
  if (!read.ok()) {
    fail(read.error().with_context("tensor " + name));
    return {};
  }
  return tensor;
}

Status WeightStore::fill(const Tensor& tensor, const TensorEntry& entry) {
  const File& file = index_.file(entry.file);
  if (tensor.buffer->host_data() != nullptr) {
    return file.read_at(entry.offset_bytes, {host_ptr<std::byte>(tensor), entry.size_bytes});
  }
  upload_piece_.resize(std::min<size_t>(entry.size_bytes, kBlockBytes));
  for (uint64_t done = 0; done < entry.size_bytes; done += upload_piece_.size()) {
    const std::span<std::byte> piece =
        std::span(upload_piece_)
            .first(std::min<size_t>(upload_piece_.size(), entry.size_bytes - done));
    MF_RETURN_IF_ERROR(file.read_at(entry.offset_bytes + done, piece));
    MF_RETURN_IF_ERROR(device_.upload(*tensor.buffer, tensor.offset_bytes + done, piece));
  }
  return {};
}

std::optional<QuantFormat> WeightStore::module_format(const std::string& module,
                                                      std::string_view weight_name,
                                                      const Shape& shape) {
  const std::string name = module + std::string(weight_name);
  const TensorEntry* entry = index_.find(name);
  if (entry == nullptr) {
    fail_missing(name);
    return std::nullopt;
  }
  const int64_t cols = shape.back();
  const TensorEntry* scales = index_.find(module + ".scales");
  if (scales == nullptr) {
    if (entry->shape != shape) {
      fail(make_error(ErrorCode::kCorruption, "tensor {} has shape {}, config.json means {}", name,
                      entry->shape.to_string(), shape.to_string()));
      return std::nullopt;
    }
    const QuantFormat format = QuantFormat::plain(entry->dtype);
    if (is_valid(format, cols)) return format;
    fail(make_error(ErrorCode::kUnsupported,
                    "tensor {} has dtype {}, supported for weights are F32, F16, BF16 and MLX "
                    "affine groups",
                    name, dtype_name(entry->dtype)));
    return std::nullopt;
  }
  const TensorEntry* biases = index_.find(module + ".biases");
  if (biases == nullptr || entry->dtype != DType::kU32) {
    fail(make_error(ErrorCode::kUnsupported,
                    "module {} has scales, {} and weights of dtype {}; only MLX affine groups "
                    "(U32 weights, scales, biases) are supported",
                    module, biases == nullptr ? "no biases" : "biases", dtype_name(entry->dtype)));
    return std::nullopt;
  }
  // The packed widths tell bits and group size; the config must not say otherwise.
  const int64_t packed = entry->shape.rank() > 0 ? entry->shape.back() : 0;
  const int64_t groups = scales->shape.rank() > 0 ? scales->shape.back() : 0;
  const int64_t bits = packed * 32 / cols;
  const int64_t group_size = groups > 0 ? cols / groups : 0;
  Shape packed_shape = shape;
  packed_shape.set(shape.rank() - 1, packed);
  Shape group_shape = shape;
  group_shape.set(shape.rank() - 1, groups);
  const QuantFormat format =
      QuantFormat::affine(static_cast<int>(std::min<int64_t>(bits, 64)),
                          static_cast<int>(std::min<int64_t>(group_size, 4096)), scales->dtype);
  if (!is_valid(format, cols) || packed * 32 != bits * cols || groups * group_size != cols ||
      entry->shape != packed_shape || scales->shape != group_shape ||
      biases->shape != scales->shape || biases->dtype != scales->dtype) {
    fail(make_error(ErrorCode::kCorruption,
                    "module {}: weight {}, scales {} {}, biases {} {} do not make an affine "
                    "matrix {}",
                    module, entry->shape.to_string(), dtype_name(scales->dtype),
                    scales->shape.to_string(), dtype_name(biases->dtype), biases->shape.to_string(),
                    shape.to_string()));
    return std::nullopt;
  }
  const std::optional<ModuleQuant> stated = quant_.lookup(module);
  if (stated && (stated->bits != format.bits || stated->group_size != format.group_size)) {
    fail(make_error(ErrorCode::kCorruption,
                    "module {} is stored with {} bits in groups of {}, config.json says {} bits "
                    "in groups of {}",
                    module, format.bits, format.group_size, stated->bits, stated->group_size));
    return std::nullopt;
  }
  return format;
}

std::vector<const TensorEntry*> WeightStore::claim_module(const std::string& module,
                                                          std::string_view weight_name,
                                                          const QuantFormat& format) {
  std::vector<const TensorEntry*> parts = {claim(module + std::string(weight_name))};
  switch (format.kind) {
    case QuantKind::kPlain:
      break;
    case QuantKind::kAffine:
      parts.push_back(claim(module + ".scales"));
      parts.push_back(claim(module + ".biases"));
      break;
  }
  return parts;
}

Weight WeightStore::matrix(std::string_view name, int64_t rows, int64_t cols) {
  return take_module(name, {rows, cols}, Placement::kPreferred);
}

Weight WeightStore::per_head_matrix(std::string_view name, int64_t rows, int64_t cols) {
  return take_module(name, {rows, cols}, Placement::kAsStored);
}

Weight WeightStore::stacked_matrix(std::string_view name, int64_t heads, int64_t rows,
                                   int64_t cols) {
  return take_module(name, {heads, rows, cols}, Placement::kAsStored);
}

Weight WeightStore::router(std::string_view name, int64_t num_experts, int64_t cols) {
  const Shape shape{num_experts, cols};
  const size_t before = modules_.size();
  Weight router = assumes()
                      ? assume_module(name, shape, assumed_.router_bits, Placement::kPreferred)
                      : take_module(name, shape, Placement::kPreferred);
  if (modules_.size() > before) modules_.back().is_router = true;
  router.exact_activations = true;
  return router;
}

Weight WeightStore::embedding(int64_t vocab_size, int64_t hidden_size, bool tied) {
  const Weight table =
      take_module("embed_tokens", {vocab_size, hidden_size},
                  shares_head(tied) ? Placement::kPreferred : Placement::kAsStored);
  sizes_.lookup_parameters = static_cast<uint64_t>(table.rows * table.cols);
  sizes_.lookup_bytes = table.is_null() ? 0 : table.size_bytes();
  return table;
}

Weight WeightStore::head(const Weight& embedding, int64_t vocab_size, int64_t hidden_size,
                         bool tied) {
  if (!shares_head(tied)) {
    return take_module("lm_head", {vocab_size, hidden_size}, Placement::kPreferred);
  }
  sizes_.lookup_parameters = sizes_.lookup_bytes = 0;
  return embedding;
}

QuantFormat WeightStore::placed(const QuantFormat& stored, int64_t rows, int64_t cols) const {
  return stored.with_order(device_.preferred_order(stored, rows, cols));
}

Weight WeightStore::take_module(std::string_view name, const Shape& shape, Placement placement) {
  if (assumes()) return assume_module(name, shape, assumed_.bits, placement);
  std::string module = full_name(std::string(name) + ".weight");
  module.resize(module.size() - std::string_view(".weight").size());
  const std::optional<QuantFormat> format = module_format(module, ".weight", shape);
  if (!format) return {};
  const std::vector<const TensorEntry*> parts = claim_module(module, ".weight", *format);
  modules_.push_back({module, shape, *format});
  Weight weight;
  weight.cols = shape.back();
  weight.rows = shape.num_elements() / weight.cols;
  weight.format =
      placement == Placement::kPreferred ? placed(*format, weight.rows, weight.cols) : *format;
  sizes_.parameters += static_cast<uint64_t>(shape.num_elements());
  if (weight.format.order == WeightOrder::kTiled) {
    weight.data = load_tiled(module, parts, weight);
    return weight;
  }
  weight.data = load(module + ".weight", *parts[0]);
  if (parts.size() == 3) {
    weight.scales = load(module + ".scales", *parts[1]);
    weight.biases = load(module + ".biases", *parts[2]);
  }
  return weight;
}

Tensor WeightStore::load_tiled(const std::string& module, std::span<const TensorEntry* const> parts,
                               const Weight& weight) {
  const auto bytes = static_cast<int64_t>(weight.size_bytes());
  const Tensor tiles = place(static_cast<size_t>(bytes), {bytes}, DType::kU8);
  if (tiles.is_null()) return tiles;
  sizes_.bytes += weight.size_bytes();
  if (!reads_after(weight.size_bytes())) return tiles;
  const Status read = read_as_tiles(device_, tiles, index_,
                                    {.codes = *parts[0], .scales = *parts[1], .biases = *parts[2]},
                                    weight.format, weight.rows);
  if (!read.ok()) {
    fail(read.error().with_context("module " + module));
    return {};
  }
  return tiles;
}

Tensor WeightStore::vector(std::string_view name, const Shape& shape, float add) {
  const auto elements = static_cast<uint64_t>(shape.num_elements());
  if (assumes()) {
    sizes_.parameters += elements;
    sizes_.stored_bytes += elements * sizeof(Bf16);
    sizes_.bytes += elements * sizeof(float);
    return place(elements * sizeof(float), shape, DType::kF32);
  }
  const std::string full = full_name(name);
  const TensorEntry* entry = claim(full);
  if (entry == nullptr) return {};
  if (squeezed(entry->shape) != squeezed(shape) || !is_plain_float(entry->dtype)) {
    fail(make_error(ErrorCode::kCorruption, "tensor {} is {} {}, expected floats {}", full,
                    dtype_name(entry->dtype), entry->shape.to_string(), shape.to_string()));
    return {};
  }
  sizes_.parameters += elements;
  if (!reads_after(entry->size_bytes)) {
    sizes_.bytes += elements * sizeof(float);
    return place(elements * sizeof(float), shape, DType::kF32);
  }
  std::vector<float> values = read_floats(full, *entry);
  if (values.empty()) return {};
  for (float& value : values) value += add;
  const Tensor flat = constant(values);
  return flat.is_null() ? flat : flat.reshape(shape);
}

std::vector<float> WeightStore::read_floats(const std::string& name, const TensorEntry& entry) {
  std::vector<std::byte> stored(entry.size_bytes);
  const Status read = index_.file(entry.file).read_at(entry.offset_bytes, stored);
  if (!read.ok()) {
    fail(read.error().with_context("tensor " + name));
    return {};
  }
  std::vector<float> values(static_cast<size_t>(entry.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_float(stored.data(), static_cast<int64_t>(i), entry.dtype);
  }
  return values;
}

float WeightStore::scalar(std::string_view name) {
  if (assumes()) return 1.0f;
  const std::string full = full_name(name);
  const TensorEntry* entry = claim(full);
  if (entry == nullptr || loading_ == WeightLoading::kCheckOnly) return 1.0f;
  if (entry->shape.num_elements() != 1 || !is_plain_float(entry->dtype)) {
    fail(make_error(ErrorCode::kCorruption, "tensor {} is {} {}, expected one float", full,
                    dtype_name(entry->dtype), entry->shape.to_string()));
    return 1.0f;
  }
  const std::vector<float> values = read_floats(full, *entry);
  return values.empty() ? 1.0f : values.front();
}

Tensor WeightStore::constant(std::span<const float> values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  const Tensor tensor = place(values.size_bytes(), shape, DType::kF32);
  if (tensor.is_null() || values.empty()) return tensor;
  sizes_.bytes += values.size_bytes();
  if (loading_ != WeightLoading::kRead) return tensor;
  const Status uploaded =
      device_.upload(*tensor.buffer, tensor.offset_bytes, std::as_bytes(values));
  if (!uploaded.ok()) fail(uploaded.error());
  return tensor;
}

Status WeightStore::first_failures() const {
  std::vector<std::string> what;
  for (const Error& error : errors_) what.push_back(error.message());
  const ErrorCode code = errors_.empty() ? ErrorCode::kNotFound : errors_.front().code();
  if (missing_.size() == 1) {
    what.push_back(format("tensor {} is missing from the checkpoint", missing_.front()));
  } else if (!missing_.empty()) {
    what.push_back(format("{} tensors are missing from the checkpoint: {}", missing_.size(),
                          first_of(missing_, ", ")));
  }
  return Error(code, first_of(what, "; "));
}

Status WeightStore::finish() {
  if (!errors_.empty() || !missing_.empty()) return first_failures();
  std::vector<std::string> unclaimed;
  for (const auto& item : index_.entries()) {
    const std::string& name = item.first;
    const bool ignored =
        is_derived(name) ||
        std::any_of(scheme_.ignored_prefixes.begin(), scheme_.ignored_prefixes.end(),
                    [&](const std::string& p) { return name.starts_with(p); });
    if (!ignored && !claimed_.contains(name)) unclaimed.push_back(name);
  }
  if (unclaimed.empty()) return check_pack_is_used();
  if (unclaimed.size() == 1) {
    return make_error(ErrorCode::kUnsupported,
                      "tensor {} is in the checkpoint and no part of the model uses it",
                      unclaimed.front());
  }
  return make_error(ErrorCode::kUnsupported,
                    "{} tensors are in the checkpoint and no part of the model uses them: {}",
                    unclaimed.size(), first_of(unclaimed, ", "));
}

}  // namespace moeflux
