// GGUF files made by hand, read as families read them.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "model/family/family.h"
#include "model/gguf/gguf_model.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/io/memory_file.h"

namespace moeflux::testing {

inline Result<gguf::Container> open(const GgufImage& image) {
  std::vector<std::unique_ptr<File>> files;
  files.push_back(std::make_unique<MemoryFile>("m.gguf", image.bytes()));
  return gguf::Container::read(std::move(files));
}

inline Result<std::string> config_of(const GgufImage& image) {
  MF_ASSIGN_OR_RETURN(const gguf::Container model, open(image));
  return gguf_config(model);
}

inline Result<ModelSpec> spec_of(const GgufImage& image) {
  MF_ASSIGN_OR_RETURN(const std::string text, config_of(image));
  MF_ASSIGN_OR_RETURN(Config config, Config::parse(text));
  MF_ASSIGN_OR_RETURN(const Family* family, find_family(config.model_type()));
  return family->read_spec(config);
}

inline Result<TensorIndex> tensors_of(const GgufImage& image) {
  MF_ASSIGN_OR_RETURN(gguf::Container model, open(image));
  return gguf_tensors(std::move(model));
}

/// Keys that all architectures have.
inline GgufImage model_of(const std::string& architecture, uint32_t blocks = 2) {
  GgufImage image;
  image.text("general.architecture", architecture);
  const auto u32 = [&](const char* key, uint32_t value) {
    image.u32(architecture + "." + key, value);
  };
  u32("block_count", blocks);
  u32("embedding_length", 64);
  u32("context_length", 512);
  u32("vocab_size", 256);
  u32("feed_forward_length", 128);
  u32("attention.head_count", 4);
  u32("expert_count", 8);
  u32("expert_used_count", 2);
  u32("expert_feed_forward_length", 96);
  image.f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  return image;
}

inline std::string array_of(std::initializer_list<uint32_t> values) {
  GgufBytes bytes;
  bytes.number<uint32_t>(4).number<uint64_t>(values.size());
  for (const uint32_t value : values) bytes.number(value);
  return bytes.text();
}

}  // namespace moeflux::testing
