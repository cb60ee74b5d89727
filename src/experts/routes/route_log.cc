#include "experts/routes/route_log.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace moeflux {

Result<RouteLog> RouteLog::create(Device& device, const ExpertTable& table, int64_t tokens_max,
                                  int64_t top_k_max) {
  // A later pass over a layer is a layer without experts of its own.
  const auto layers = static_cast<int64_t>(table.layers.size());
  RouteLog log(table);
  log.top_k_max_ = top_k_max;
  const auto bytes = static_cast<size_t>(layers * tokens_max * top_k_max) * sizeof(int32_t);
  MF_ASSIGN_OR_RETURN(log.device_, device.allocate(bytes, MemoryKind::kDevice));
  MF_ASSIGN_OR_RETURN(log.host_, device.allocate(bytes, MemoryKind::kHostVisible));
  return log;
}

Tensor RouteLog::ids(LayerId layer, int64_t tokens, int64_t top_k) {
  MF_CHECK(tokens == recorded_.tokens && top_k <= top_k_max_);
  const auto at = static_cast<int64_t>(recorded_.layers.size()) * layer_ids(recorded_);
  recorded_.layers.push_back({layer, top_k});
  return Tensor::view(*device_, static_cast<size_t>(at) * sizeof(int32_t), {tokens, top_k},
                      DType::kI32);
}

std::span<const RouteLog::Visit> RouteLog::next(Encoder& encoder, std::span<const StepRows> rows) {
  visits_.clear();
  tokens_of_decode_ = 0;
  // The encoder of the step after it has waited for more than this.
  if (!copied_.layers.empty() && encoder.wait(copied_.arrives).ok()) read(copied_);
  std::swap(copied_, recorded_);
  if (!copied_.layers.empty()) {
    // Bytes of any kind: a copy computes nothing.
    const Shape all{static_cast<int64_t>(copied_.layers.size()), layer_ids(copied_)};
    encoder.run(ops::Copy{Tensor::view(*host_, 0, all, DType::kF32),
                          Tensor::view(*device_, 0, all, DType::kF32)});
    copied_.arrives = encoder.submit();
  }
  recorded_.rows.assign(rows.begin(), rows.end());
  recorded_.layers.clear();
  recorded_.tokens = 0;
  for (const StepRows& part : rows) recorded_.tokens += part.rows;
  return visits_;
}

void RouteLog::read(const Step& step) {
  const auto count = step.layers.size() * static_cast<size_t>(layer_ids(step));
  const auto* from = reinterpret_cast<const int32_t*>(host_->host_data());
  ids_.clear();
  ids_.reserve(count);  // visits refer to it
  for (const StepRows& part : step.rows) {
    if (part.phase == StepPhase::kDecode) tokens_of_decode_ += part.rows;
  }
  for (size_t l = 0; l < step.layers.size(); ++l) {
    const Layer& layer = step.layers[l];
    const int32_t* next = from + l * static_cast<size_t>(layer_ids(step));
    for (const StepRows& part : step.rows) {
      const size_t begin = ids_.size();
      const int32_t* const end = next + part.rows * layer.top_k;
      std::copy_if(next, end, std::back_inserter(ids_), [&](int32_t id) {
        return id >= 0 && id < table_->layer(layer.layer).num_experts;
      });
      next = end;
      visits_.push_back({.layer = layer.layer,
                         .phase = part.phase,
                         .tokens = part.rows,
                         .ids = std::span(ids_).subspan(begin)});
    }
  }
}

}  // namespace moeflux
