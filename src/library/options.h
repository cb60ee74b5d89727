// Option structs of moeflux.h, whose size says which version of the header the caller has, as
// options of ours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "base/format.h"
#include "base/result.h"
#include "chat/session.h"
#include "moeflux/moeflux.h"

namespace moeflux {

/// Size of a struct in version 0.2: the least a caller can have. A struct that grows later says
/// here where it ended.
template <typename T>
constexpr size_t kFirstSize = sizeof(T);

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

/// The structs of a caller's array, all of which have the size that the first says.
template <typename T>
Result<std::vector<T>> read_structs(const char* name, const T* from, size_t count) {
  std::vector<T> read;
  if (count == 0) return read;
  if (from == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "{} is null, expected {} of them", name, count);
  }
  const size_t stride = from->struct_size;
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  for (size_t i = 0; i < count; ++i) {
    const auto* one = reinterpret_cast<const T*>(bytes + i * stride);
    if (one->struct_size != stride) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} {}: struct_size is {}, expected {} as the first one's", name, i,
                        one->struct_size, stride);
    }
    MF_ASSIGN_OR_RETURN(const T known, read_struct(name, one));
    read.push_back(known);
  }
  return read;
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

/// How long a Turn waits, of turn_timeout_ms.
Result<int64_t> turn_timeout(int64_t timeout_ms);
/// Callbacks included, which must live while the model is opened.
Result<OpenModelOptions> open_options(const mf_model_options& options);

/// Not validated: Session::set_sampler() does that.
/// One of MF_PHASE_*, for a call of so many tokens.
Result<StepPhase> step_phase(int32_t phase, size_t tokens);

Result<SamplerOptions> sampler_options(const mf_sampler_options& options);
mf_sampler_options to_c(const SamplerOptions& options);

/// Without callbacks and the stop token.
Result<GenerateOptions> generate_options(const mf_generate_options& options);
mf_generate_result to_c(const GenerateResult& result);

/// The callback for progress of options that have one: how many of `total` tokens are done.
template <typename Options>
std::function<bool(int64_t)> token_progress(const Options& options, size_t total) {
  if (options.on_progress == nullptr) return {};
  return [&options, total](int64_t done) {
    return options.on_progress(options.user_data, static_cast<uint64_t>(done), total) != 0;
  };
}

}  // namespace moeflux
