// Option structs of moeflux.h, whose size says which version of the header the caller has, as
// options of ours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/result.h"
#include "chat/text_generator.h"
#include "devices/open_device.h"
#include "engine/engine.h"
#include "moeflux/moeflux.h"

namespace moeflux {

/// What a struct had in version 0.1: the least a caller can have.
template <typename T>
constexpr size_t kFirstSize = sizeof(T);
template <>
inline constexpr size_t kFirstSize<mf_model_options> = offsetof(mf_model_options, on_log);
template <>
inline constexpr size_t kFirstSize<mf_metrics> = offsetof(mf_metrics, waiting_calls);

/// Fails unless `size` can be that of some version of the struct, and what lies past the `known`
/// bytes of `data` is zero.
Status check_struct(const char* name, const void* data, size_t size, size_t first, size_t known);

/// The caller's struct over `defaults`; null: these.
template <typename T>
Result<T> read_struct(const char* name, const T* from, T defaults = {}) {
  if (from == nullptr) return defaults;
  MF_RETURN_IF_ERROR(check_struct(name, from, from->struct_size, kFirstSize<T>, sizeof(T)));
  std::memcpy(&defaults, from, std::min(sizeof(T), from->struct_size));
  return defaults;
}

/// Fills the caller's struct as far as it goes; fields that are newer than we are become zero.
template <typename T>
Status write_struct(const char* name, T values, T* to) {
  if (to == nullptr) return make_error(ErrorCode::kInvalidArgument, "{} is null", name);
  const size_t size = to->struct_size;
  MF_RETURN_IF_ERROR(check_struct(name, nullptr, size, kFirstSize<T>, sizeof(T)));
  std::memset(static_cast<void*>(to), 0, size);
  values.struct_size = size;
  std::memcpy(to, &values, std::min(sizeof(T), size));
  return {};
}

Result<DeviceOptions> device_options(const mf_model_options& options);
/// How long calls wait: milliseconds, 0 or MF_WAIT_FOREVER.
Status check_turn_timeout(int64_t timeout_ms);
/// Without callbacks.
Result<EngineOptions> engine_options(const mf_model_options& options);

/// Checked against the vocabulary.
Result<SamplerOptions> sampler_options(const mf_sampler_options& options, int64_t vocab_size);
mf_sampler_options to_c(const SamplerOptions& options);

/// Stop tokens and strings, flags and the number of tokens.
Result<GenerateOptions> generate_options(const mf_generate_options& options,
                                         const std::vector<TokenId>& model_stop_tokens);

}  // namespace moeflux
