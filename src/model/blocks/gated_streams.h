// A residual of several streams that do not mix (Qwen4). Each is normed by weights of its own; a
// gate of low rank for each number says what a branch reads of them. A gate for each stream says
// what it gets of the result. The norm is part of reading, so branches and the head have none.
#pragma once

#include <memory>
#include <string>

#include "backend/encoder.h"
#include "model/blocks/residual_stream.h"

namespace moeflux::blocks {

/// out[t, s] = the norm of x[t, s] times weight[s]. x and out [tokens, streams, cols], weight
/// f32 [streams, cols]; out may be x.
void norm_streams(Encoder& e, Tensor out, Tensor x, Tensor weight, float eps);

/// The weights of such a norm, which checkpoints have in one row: `norm_add` more than they say,
/// times `factor`.
Tensor take_stream_norm(WeightStore& weights, const std::string& name, const ModelSpec& spec,
                        float norm_add, float factor = 1.0f);

/// Claims "layers.N.attn_hyper_connection", "layers.N.mlp_hyper_connection" and
/// "hyper_connection_mixer", and the last below a draft layer. `norm_add` is added to weights of
/// norms.
std::unique_ptr<Residual> make_gated_streams(const ModelSpec& spec, WeightStore& weights,
                                             float norm_add);

}  // namespace moeflux::blocks
