#include "convert/random/synthetic_gguf.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/trace/trace_device.h"
#include "base/check.h"
#include "base/format.h"
#include "base/units.h"
#include "convert/random/gguf_writing.h"
#include "convert/random/random_weights.h"
#include "convert/random/synthetic_blocks.h"
#include "convert/random/synthetic_model.h"
#include "load/model_loader.h"
#include "model/gguf/gguf_model.h"
#include "model/mixers/latent_attention.h"
#include "quant/ggml_file_types.h"

namespace moeflux {
namespace {

/// False of a matrix so small that readers cannot tell by its bytes in the file, padded to whole
/// 32, which of the types that share a number it has: Q2_0's blocks are of 64 or of 128 numbers.
bool is_told_by_size(const GgmlType& type, const Shape& shape) {
  constexpr uint64_t kAlignment = 32;
  const int64_t cols = shape.back();
  const auto padded = [&](const GgmlType& each) {
    return round_up(static_cast<uint64_t>(shape.num_elements() / cols * each.row_bytes(cols)),
                    kAlignment);
  };
  for (const GgmlType& other : ggml_types()) {
    if (other.id != type.id || other.name == type.name || !other.fits(cols)) continue;
    if (padded(other) == padded(type)) return false;
  }
  return true;
}

Status check_fill(const GgmlType& type) {
  if (can_fill(type)) return {};
  return make_error(ErrorCode::kInvalidArgument, "no random matrices of type {} can be made",
                    type.name);
}

bool fits_name(std::string_view name, std::string_view begin) {
  for (;;) {
    if (name.starts_with(begin)) return true;
    const size_t dot = name.find('.');
    if (dot == name.npos) return false;
    name.remove_prefix(dot + 1);
  }
}

class Builder {
 public:
  Builder(const LoadedModel& model, const GgufArchitecture& architecture, const GgmlType& type,
          std::span<const GgufNamedType> named)
      : model_(model),
        architecture_(architecture),
        type_(type),
        named_(named),
        is_used_(named.size(), false) {}

  void add(const RandomTensor& tensor) {
    switch (tensor.kind) {
      case RandomTensor::Kind::kRouter:
        return add_uniform(tensor.name, tensor);
      case RandomTensor::Kind::kTable:
      case RandomTensor::Kind::kMatrix:
        if (tensor.shape[0] == 1) return add_uniform(tensor.name, tensor);
        if (tensor.name.ends_with(".kv_b_proj")) return add_split(tensor);
        return add_matrix(gguf_name(architecture_, tensor.name + ".weight"), tensor);
      case RandomTensor::Kind::kExperts:
        return add_matrix(expert_name(tensor) + ".weight", tensor);
      case RandomTensor::Kind::kFloats:
        return add_floats(tensor);
    }
    __builtin_unreachable();
  }

  /// Fails where a type of `named` cannot be given to a matrix, or to none.
  Result<SyntheticCheckpoint> take() && {
    MF_RETURN_IF_ERROR(problem_);
    for (size_t i = 0; i < named_.size(); ++i) {
      if (is_used_[i]) continue;
      return make_error(ErrorCode::kInvalidArgument, "no matrix's name begins with \"{}\"",
                        named_[i].begin);
    }
    return std::move(out_);
  }

 private:
  static std::string expert_name(const RandomTensor& tensor) {
    const std::string_view projection = tensor.projection;
    return formatted("blk.{}.ffn_{}_exps", index(tensor.layer),
                     projection.substr(0, projection.find('_')));
  }

  void add_matrix(const std::string& name, const RandomTensor& tensor) {
    if (const GgmlType* type = named_type(name, tensor.shape)) {
      return out_.add_ggml(name, tensor.shape, *type, tensor.deviation);
    }
    const bool is_embedding = tensor.name == "embed_tokens";
    const GgufMatrix matrix{
        .is_expert = tensor.kind == RandomTensor::Kind::kExperts,
        .is_embedding = is_embedding,
        .is_head = tensor.name == "lm_head" || (is_embedding && model_.spec().tie_word_embeddings),
        .cols = tensor.shape.back()};
    const GgmlType& type = type_of_matrix(type_, matrix);
    const bool is_told = is_told_by_size(type, tensor.shape);
    out_.add_ggml(name, tensor.shape, is_told ? type : *find_ggml_type("F16"), tensor.deviation);
  }

  /// The type that was asked for by name; null without one.
  const GgmlType* named_type(std::string_view name, const Shape& shape) {
    const auto found = std::ranges::find_if(
        named_, [&](const GgufNamedType& each) { return fits_name(name, each.begin); });
    if (found == named_.end()) return nullptr;
    is_used_[static_cast<size_t>(found - named_.begin())] = true;
    const GgmlType& type = *found->type;
    if (type.fits(shape.back()) && is_told_by_size(type, shape)) return &type;
    if (!problem_.ok()) return nullptr;
    if (!type.fits(shape.back())) {
      problem_ = make_error(ErrorCode::kInvalidArgument,
                            "{}: rows of {} weights cannot be blocks of {}, which have {}", name,
                            shape.back(), type.name, type.block_elements);
    } else {
      problem_ = make_error(ErrorCode::kInvalidArgument,
                            "{}: too small for {}; its size would not tell its blocks' length",
                            name, type.name);
    }
    return nullptr;
  }

  /// Adds a tensor whose activations must stay exact. A gate of one row is a vector.
  void add_uniform(const std::string& module, const RandomTensor& tensor) {
    const Shape shape = tensor.shape[0] == 1 ? Shape{tensor.shape[1]} : tensor.shape;
    out_.add_uniform(gguf_name(architecture_, module + ".weight"), shape, DType::kF32,
                     tensor.deviation);
  }

  /// Up-projections of keys, each head's transposed, and of values.
  void add_split(const RandomTensor& tensor) {
    const std::string before = tensor.name.substr(0, tensor.name.rfind('.') + 1);
    const auto* latent = first_mixer<LatentAttentionSpec>(model_.spec());
    MF_CHECK(latent != nullptr);
    RandomTensor part = tensor;
    part.shape = {latent->num_heads, latent->kv_lora_rank, latent->nope_dim};
    add_matrix(gguf_name(architecture_, before + "embed_q.weight"), part);
    part.shape = {latent->num_heads, latent->v_dim, latent->kv_lora_rank};
    add_matrix(gguf_name(architecture_, before + "unembed_out.weight"), part);
  }

  void add_floats(const RandomTensor& tensor) {
    if (!tensor.projection.empty()) {
      return out_.add_vector(expert_name(tensor) + ".bias", tensor.shape, DType::kF32, tensor.low,
                             tensor.high);
    }
    constexpr std::string_view kDecay = ".A_log";
    if (!tensor.name.ends_with(kDecay)) {
      return out_.add_vector(gguf_name(architecture_, tensor.name), tensor.shape, DType::kF32,
                             tensor.low, tensor.high);
    }
    // Files hold the rate itself, negated; rates are between 1 and 16.
    const std::string before = tensor.name.substr(0, tensor.name.size() - kDecay.size());
    out_.add_vector(gguf_name(architecture_, before + ".decay_rate"), tensor.shape, DType::kF32,
                    -16.0f, -1.0f);
  }

  const LoadedModel& model_;
  const GgufArchitecture& architecture_;
  const GgmlType& type_;
  std::span<const GgufNamedType> named_;
  std::vector<bool> is_used_;
  Status problem_;
  SyntheticCheckpoint out_;
};

}  // namespace

Result<SyntheticGguf> make_synthetic_gguf(std::string_view name, int64_t num_layers,
                                          const GgmlType& type,
                                          std::span<const GgufNamedType> named) {
  MF_RETURN_IF_ERROR(check_fill(type));
  for (const GgufNamedType& each : named) MF_RETURN_IF_ERROR(check_fill(*each.type));
  MF_ASSIGN_OR_RETURN(const std::string config, config_like(name, num_layers));
  const std::unique_ptr<Device> device = make_trace_device();
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, assume_model(config, *device, {}));
  const std::string title =
      formatted("random {} of {} layers, {}", name, model->spec().num_layers(), type.name);
  SyntheticGguf made;
  MF_ASSIGN_OR_RETURN(made.keys, gguf_keys(model->spec(), config, title));
  MF_ASSIGN_OR_RETURN(const GgufArchitecture* architecture,
                      gguf_architecture_of(model->spec().model_type));
  Builder builder(*model, *architecture, type, named);
  for (const RandomTensor& tensor : random_tensors(*model)) builder.add(tensor);
  MF_ASSIGN_OR_RETURN(made.checkpoint, std::move(builder).take());
  return made;
}

}  // namespace moeflux
