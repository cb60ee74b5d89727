#include "model/weights/weight_store.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "model/weights/stored_formats.h"

namespace moeflux {

std::optional<LayerId> layer_of(std::string_view canonical) {
  constexpr std::string_view kLayers = "layers.";
  if (!canonical.starts_with(kLayers)) return std::nullopt;
  int32_t number = 0;
  const char* const begin = canonical.data() + kLayers.size();
  const auto [end, error] = std::from_chars(begin, canonical.data() + canonical.size(), number);
  if (error != std::errc() || end == begin) return std::nullopt;
  return LayerId{number};
}

WeightStore::WeightStore(const TensorIndex& index, const QuantConfig& quant, Device& device,
                         Options options)
    : device_(device),
      loading_(options.loading),
      claims_(index, std::move(options.scheme)),
      origin_(options.loading == WeightLoading::kAssume
                  ? make_assumed_origin(claims_.scheme(), quant, device, options.assumed)
                  : make_checkpoint_origin(claims_, quant, device)),
      reads_(index, device),
      places_(std::move(options.places)) {
  open_blocks();
  experts_.layers.resize(static_cast<size_t>(options.num_layers));
  expert_prefixes_.resize(static_cast<size_t>(options.num_layers));
}

void WeightStore::open_blocks() {
  const auto open = [&](MemoryKind kind, uint64_t bytes) {
    if (bytes == 0) return;
    const Status opened = reads_.open_block(kind, bytes);
    if (!opened.ok()) claims_.fail(opened.error());
  };
  open(MemoryKind::kDevice, places_.device_bytes);
  open(MemoryKind::kHostVisible, places_.host_bytes);
  for (size_t part = 0; part < places_.part_bytes.size(); ++part) {
    if (places_.part_bytes[part] == 0) continue;
    const Status opened = reads_.open_part_block(part, places_.part_bytes[part]);
    if (!opened.ok()) claims_.fail(opened.error());
  }
  open_ring();
}

void WeightStore::open_ring() {
  const LayerRing& ring = places_.ring;
  for (int64_t i = 0; i < ring.slots; ++i) {
    Result<std::unique_ptr<Buffer>> slot =
        device_.allocate(ring.slot_bytes, MemoryKind::kHostVisible);
    if (!slot.ok()) return claims_.fail(slot.error());
    slots_.push_back(std::move(slot).value());
  }
  slot_used_.resize(ring.streamed.size());
  sizes_.bytes += ring.bytes();
  sizes_.host_bytes += ring.bytes();
}

std::vector<std::unique_ptr<Buffer>> WeightStore::take_buffers() {
  std::vector<std::unique_ptr<Buffer>> buffers = reads_.take_buffers();
  std::ranges::move(slots_, std::back_inserter(buffers));
  return buffers;
}

bool WeightStore::has(std::string_view name) const {
  constexpr std::string_view kWeight = ".weight";
  if (!name.ends_with(kWeight)) return claims_.has(name);
  return find_codes(claims_, std::string(name.substr(0, name.size() - kWeight.size())), kWeight)
      .has_value();
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
  Weight router = take_module(name, {num_experts, cols}, Placement::kPreferred, true);
  router.exact_activations = true;
  return router;
}

// A head that is the table is wanted at both ends.
std::optional<LayerId> WeightStore::layer_beside(std::string_view name) const {
  if (name == "lm_head") return LayerId{static_cast<int32_t>(experts_.layers.size()) - 1};
  if (name == "embed_tokens" && table_is_apart_) return LayerId{0};
  return layer_of(name);
}

Weight WeightStore::embedding(int64_t vocab_size, int64_t hidden_size, bool tied) {
  table_is_apart_ = !shares_head(tied);
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

Weight WeightStore::padded_head(int64_t vocab_size, int64_t padded_size, int64_t hidden_size) {
  const TensorEntry* stored = find("lm_head.weight");
  const bool is_whole =
      stored != nullptr && stored->shape.rank() > 0 && stored->shape[0] == vocab_size;
  if (is_whole || padded_size == vocab_size) {
    return take_module("lm_head", {vocab_size, hidden_size}, Placement::kPreferred);
  }
  // Row-major, so that the rows are the first bytes of each part.
  const Weight all = take_module("lm_head", {padded_size, hidden_size}, Placement::kAsStored);
  if (all.is_null()) return {};
  Weight head = lay_out(all.format, vocab_size, hidden_size);
  for (const PartRole role : kPartRoles) {
    const Tensor& part = all.parts[role];
    if (!head.has(role) || part.is_null()) continue;
    head.parts[role] =
        Tensor::view(*part.buffer, part.offset_bytes, head.parts[role].shape, part.dtype);
  }
  return head;
}

Tensor WeightStore::place(std::string_view name, size_t bytes, const Shape& shape, DType dtype,
                          MemoryKind kind) {
  const Result<Tensor> placed = reads_.place(bytes, shape, dtype, kind, layer_beside(name));
  if (!placed.ok()) {
    claims_.fail(placed.error());
    return {};
  }
  sizes_.bytes += bytes;
  if (kind == MemoryKind::kHostVisible) sizes_.host_bytes += bytes;
  const uint64_t taken = round_up(bytes, WeightReads::kPlaceAlignment);
  sizes_.placed_bytes += taken;
  if (const std::optional<LayerId> layer = layer_beside(name)) {
    const auto at = static_cast<size_t>(index(*layer));
    sizes_.layer_bytes.resize(std::max(sizes_.layer_bytes.size(), at + 1));
    sizes_.layer_bytes[at] += taken;
  }
  return *placed;
}

// A direct read copies nothing where its place in memory is its place in the file, to a page.
Tensor WeightStore::place_in_ring(const Tensor& part, LayerId layer, const StoredPart& from) {
  uint64_t& used = slot_used_[static_cast<size_t>(index(layer))];
  uint64_t begin = round_up(used, WeightReads::kPlaceAlignment);
  if (from.entry != nullptr && from.entry->offset_bytes % WeightReads::kPlaceAlignment == 0) {
    begin += (from.entry->offset_bytes - begin) % LayerRing::kPageBytes;
  }
  used = begin + part.size_bytes();
  sizes_.streamed_bytes += part.size_bytes();
  Buffer& slot = *slots_[static_cast<size_t>(places_.ring.slot_of(layer))];
  return Tensor::view(slot, begin, part.shape, part.dtype);
}

/// A stack of matrices can be taken for one of all their rows unless rows share scales.
static bool is_stored_as(const StoredModule& module, const Weight& stored) {
  return std::all_of(kPartRoles.begin(), kPartRoles.end(), [&](PartRole role) {
    const TensorEntry* entry = module.parts[role].entry;
    return stored.has(role)
               ? entry != nullptr && entry->size_bytes == stored.parts[role].size_bytes()
               : entry == nullptr;
  });
}

Weight WeightStore::take_module(std::string_view name, const Shape& shape, Placement placement,
                                bool is_router) {
  const std::optional<StoredModule> module = origin_->module(name, shape, is_router);
  if (!module) return {};
  const size_t at = modules_.size();
  const bool on_host = at < places_.on_host.size() && places_.on_host[at];
  modules_.push_back({.name = module->name,
                      .shape = shape,
                      .format = module->format,
                      .is_router = is_router,
                      .canonical = std::string(name),
                      .stored = *module,
                      .beside = layer_beside(name)});
  const int64_t cols = shape.back();
  const int64_t rows = shape.num_elements() / cols;
  QuantFormat format = format_in_memory(module->format, rows, cols);
  if (placement == Placement::kPreferred) {
    format.order = device_.preferred_order(format, rows, cols);
  }
  Weight weight = lay_out(format, rows, cols);
  sizes_.parameters += static_cast<uint64_t>(shape.num_elements());
  const Weight stored = lay_out(module->format, rows, cols);
  if (!module->is_assumed() && !is_stored_as(*module, stored)) {
    claims_.fail(make_error(ErrorCode::kUnsupported,
                            "module {}: scales of {} {} are not those of one matrix", module->name,
                            module->format.to_string(), shape.to_string()));
    return {};
  }
  sizes_.stored_bytes += stored.size_bytes();
  if (StreamedModule::is_arranged(format, module->format)) {
    modules_[at].landing_bytes = stored.size_bytes();
  }
  const std::optional<LayerId> layer = modules_[at].layer();
  const bool in_ring = layer && places_.ring.holds(*layer);
  if (in_ring && slots_.empty()) return {};  // no memory, as finish() will say
  for (const PartRole role : kPartRoles) {
    if (!weight.has(role)) continue;
    Tensor& part = weight.parts[role];
    if (in_ring) {
      part = place_in_ring(part, *layer, module->parts[role]);
      continue;
    }
    part = place(name, part.size_bytes(), part.shape, part.dtype,
                 on_host ? MemoryKind::kHostVisible : MemoryKind::kDevice);
    if (part.is_null()) return {};
    modules_[at].placed_bytes += round_up(part.size_bytes(), WeightReads::kPlaceAlignment);
  }
  if (in_ring) {
    streamed_.push_back({*layer, places_.ring.slot_of(*layer), weight, *module});
  } else if (!module->is_assumed()) {
    reads_.add_module(weight, *module);
  }
  return weight;
}

void WeightStore::add_network(const GluWeights& network, size_t modules_before) {
  bool is_far = modules_before < modules_.size();
  for (size_t i = modules_before; i < modules_.size(); ++i) {
    modules_[i].is_network = true;
    is_far = is_far && i < places_.on_host.size() && places_.on_host[i];
  }
  if (!is_far) return;
  const std::optional<LayerId> layer = modules_[modules_before].layer();
  if (layer && !places_.ring.holds(*layer)) far_networks_.push_back({*layer, network});
}

Tensor WeightStore::vector(std::string_view name, const Shape& shape, float add) {
  return mapped_vector(name, shape, [add](float value) { return value + add; });
}

Tensor WeightStore::mapped_vector(std::string_view name, const Shape& shape,
                                  const std::function<float(float)>& map) {
  const std::optional<StoredFloats> stored = origin_->floats(name, shape);
  if (!stored) return {};
  const auto elements = static_cast<uint64_t>(shape.num_elements());
  // Two functions of one tensor count once, as it does in a file.
  const bool is_again = !floats_.empty() && floats_.back().canonical == name;
  if (!is_again) {
    floats_.push_back({std::string(name), shape, *stored, map});
    sizes_.parameters += elements;
    sizes_.stored_bytes += stored->stored_bytes;
  }
  const Tensor tensor = place(name, elements * sizeof(float), shape, DType::kF32);
  if (stored->entry != nullptr && !tensor.is_null()) {
    reads_.add_floats(tensor, stored->name, *stored->entry, map);
  }
  return tensor;
}

Tensor WeightStore::spread_taps(std::string_view name, int64_t channels, int64_t taps,
                                int64_t step) {
  const std::optional<StoredFloats> stored = origin_->floats(name, {channels, taps});
  if (!stored) return {};
  floats_.push_back({std::string(name), {channels, taps}, *stored, [](float v) { return v; }});
  sizes_.parameters += static_cast<uint64_t>(channels * taps);
  sizes_.stored_bytes += stored->stored_bytes;
  const Shape shape{channels, (taps - 1) * step + 1};
  const Tensor tensor =
      place(name, static_cast<size_t>(shape.num_elements()) * sizeof(float), shape, DType::kF32);
  if (stored->entry != nullptr && !tensor.is_null()) {
    reads_.add_spread_floats(tensor, stored->name, *stored->entry, {taps, step});
  }
  return tensor;
}

Tensor WeightStore::ids(std::string_view name, const Shape& shape, int64_t below) {
  const std::optional<StoredFloats> stored = origin_->ids(name, shape);
  if (!stored) return {};
  floats_.push_back({std::string(name), shape, *stored, {}, below});
  const auto elements = static_cast<uint64_t>(shape.num_elements());
  sizes_.parameters += elements;
  sizes_.stored_bytes += stored->stored_bytes;
  const Tensor tensor = place(name, elements * sizeof(int32_t), shape, DType::kI32);
  if (stored->entry != nullptr && !tensor.is_null()) {
    reads_.add_ids(tensor, stored->name, *stored->entry, below);
  }
  return tensor;
}

Weight WeightStore::float_matrix(std::string_view name, int64_t rows, int64_t cols,
                                 const Shape& stored) {
  Weight weight = lay_out(QuantFormat::plain(DType::kF32), rows, cols);
  const Shape shape{rows, cols};
  const Tensor taken = vector(name, stored.rank() == 0 ? shape : stored);
  if (taken.shape.rank() == 0) return weight;  // missing, or of another shape: the claims say it
  weight.parts.codes = taken.reshape(shape);
  weight.exact_activations = true;
  return weight;
}

std::vector<float> WeightStore::host_vector(std::string_view name, int64_t count, float absent) {
  const std::optional<StoredFloats> stored = origin_->floats(name, {count});
  const bool is_known = std::any_of(floats_.begin(), floats_.end(),
                                    [&](const ClaimedFloats& f) { return f.canonical == name; });
  if (stored && !is_known) {
    floats_.push_back({std::string(name), {count}, *stored, [](float value) { return value; }});
  }
  std::vector<float> values(static_cast<size_t>(count), absent);
  if (!stored || stored->entry == nullptr || loading_ != WeightLoading::kRead) return values;
  Result<std::vector<float>> read = read_floats(claims_.index(), stored->name, *stored->entry);
  if (read.ok()) return std::move(read).value();
  claims_.fail(read.error());
  return values;
}

Tensor WeightStore::constant(std::span<const float> values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  const Tensor tensor = place({}, values.size_bytes(), shape, DType::kF32);
  if (!tensor.is_null() && !values.empty()) reads_.add_constant(tensor, values);
  return tensor;
}

void WeightStore::experts(LayerId id, std::string_view prefix, const MoeSpec& moe,
                          int64_t hidden_size) {
  expert_prefixes_[static_cast<size_t>(index(id))] = std::string(prefix);
  ExpertLayer layer;
  layer.num_experts = static_cast<int32_t>(moe.num_experts);
  layer.up.rows = layer.down.cols = moe.moe_intermediate_size;
  layer.up.cols = layer.down.rows = hidden_size;
  if (has_gate(moe.glu)) layer.gate = layer.up;
  if (auto found = origin_->experts(id, prefix, std::move(layer), moe.expert_bias)) {
    experts_.layers[static_cast<size_t>(index(id))] = *std::move(found);
  }
}

}  // namespace moeflux
