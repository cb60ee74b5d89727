#include "backend/ops/expert_ffn.h"

#include "base/format.h"

namespace moeflux::ops {
namespace {

bool fits_bias(const Tensor& bias, int64_t rows) {
  return bias.is_null() || bias.num_elements() == rows;
}

}  // namespace

Status ExpertFfn::check() const {
  Conditions c(kName);
  c.is_float("x", x).is_float("slots", slots).is_float("intermediate", intermediate);
  c.equal("extents of ids", routes.ids.shape.rank(), 2)
      .is_packed("ids", routes.ids, routes.ids.shape, DType::kI32)
      .equal("rows of ids", routes.ids.dim(0), row_count(x))
      .equal("rows of slots", row_count(slots), routes.ids.num_elements())
      .equal("rows of intermediate", row_count(intermediate), routes.ids.num_elements());
  c.holds("glu.activation", is_gated_unit(glu.activation),
          "silu, gelu_tanh, relu, capped_silu or soft_capped");
  if (ready.empty()) return c.status();
  // The others are like it, and looking at hundreds takes longer than handing them over.
  const ExpertWeights& e = ready.front();
  const int64_t hidden = x.shape.back();
  const int64_t width = intermediate.shape.back();
  c.equal("columns of gate", e.gate.cols, hidden)
      .equal("columns of up", e.up.cols, hidden)
      .equal("rows of gate", e.gate.rows, width)
      .equal("rows of up", e.up.rows, width)
      .equal("columns of down", e.down.cols, width)
      .equal("rows of down", e.down.rows, slots.shape.back())
      .holds("gate_bias", e.gate_bias, fits_bias(e.gate_bias, width), "a number for each row")
      .holds("up_bias", e.up_bias, fits_bias(e.up_bias, width), "a number for each row")
      .holds("down_bias", e.down_bias, fits_bias(e.down_bias, e.down.rows),
             "a number for each row");
  return c.status();
}

std::string ExpertFfn::text() const {
  return formatted("expert_ffn {} = {} experts {}", slots.shape.to_string(), x.shape.to_string(),
                   ready.size());
}

}  // namespace moeflux::ops
