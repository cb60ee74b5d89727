// Absent and null mean the same in these files.
#include "sampling/generation_config.h"

#include <algorithm>

#include "base/format.h"
#include "base/json.h"

namespace moeflux {
namespace {

// The field, or nullptr when there is nothing to read.
const Json* field(const Json& config, const char* name) {
  if (!config.is_object()) return nullptr;
  const auto it = config.find(name);
  return it == config.end() || it->is_null() ? nullptr : &*it;
}

Status read_float(const Json& config, const char* name, float* out) {
  const Json* value = field(config, name);
  if (value == nullptr) return {};
  if (!value->is_number()) {
    return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected a number", name,
                      json_excerpt(*value));
  }
  *out = value->get<float>();
  return {};
}

Result<int32_t> read_int32(const Json& value, const char* name) {
  MF_ASSIGN_OR_RETURN(const int64_t number, json_int(value, name));
  if (number < INT32_MIN || number > INT32_MAX) {
    return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected a 32-bit integer", name,
                      number);
  }
  return static_cast<int32_t>(number);
}

}  // namespace

Result<SamplerOptions> sampler_options_from(const Json& config) {
  SamplerOptions options;
  MF_RETURN_IF_ERROR(read_float(config, "temperature", &options.temperature));
  MF_RETURN_IF_ERROR(read_float(config, "top_p", &options.top_p));
  MF_RETURN_IF_ERROR(read_float(config, "min_p", &options.min_p));
  MF_RETURN_IF_ERROR(read_float(config, "repetition_penalty", &options.repeat_penalty));
  if (options.repeat_penalty != 1.0f) options.repeat_last_n = -1;
  if (const Json* top_k = field(config, "top_k")) {
    MF_ASSIGN_OR_RETURN(options.top_k, read_int32(*top_k, "top_k"));
  }
  if (const Json* do_sample = field(config, "do_sample")) {
    if (!do_sample->is_boolean()) {
      return make_error(ErrorCode::kInvalidArgument, "do_sample is {}, expected true or false",
                        json_excerpt(*do_sample));
    }
    if (!do_sample->get<bool>()) options.temperature = 0;
  }
  MF_RETURN_IF_ERROR(validate(options));
  return options;
}

Result<std::vector<TokenId>> eos_token_ids_from(const Json& config) {
  std::vector<TokenId> ids;
  const Json* value = field(config, "eos_token_id");
  if (value == nullptr) return ids;
  const auto add = [&](const Json& item) -> Status {
    MF_ASSIGN_OR_RETURN(const int64_t number, json_int(item, "eos_token_id"));
    if (number == -1 || number == int64_t{UINT32_MAX}) return {};  // how people write that none is
    MF_ASSIGN_OR_RETURN(const int32_t id, read_int32(item, "eos_token_id"));
    if (id < 0) {
      return make_error(ErrorCode::kInvalidArgument, "eos_token_id is {}, expected 0 or more", id);
    }
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    return {};
  };
  if (!value->is_array()) {
    MF_RETURN_IF_ERROR(add(*value));
    return ids;
  }
  for (const Json& item : *value) MF_RETURN_IF_ERROR(add(item));
  return ids;
}

}  // namespace moeflux
