// Encoder: what a model may ask of a device, about twenty coarse operations.
//
// A call records work in program order; nothing is promised until wait(). Errors (an unsupported
// format, a lost device) stick to the encoder and surface at submit() or wait(): model code does
// not check each call. Shapes are the caller's responsibility: a wrong one is a bug of ours and
// aborts. Activations are f32. n is the number of tokens in the step, which may be of several
// sequences. Every op treats tokens independently of how many come with them: a token's bits depend
// neither on the chunk it arrived in nor on other sequences. Ops that remember take a list that
// says whose the rows are. Inputs and outputs must not overlap unless an op says so.
// Thread-compatible: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "base/result.h"

namespace moeflux {

enum class EventId : uint64_t {};
/// Counts up from 1, in the order of copy_beside().
enum class CopyId : uint64_t {};

/// Bytes of one buffer of a device that go into another of it.
struct BufferCopy {
  Buffer* to = nullptr;
  uint64_t to_offset = 0;
  const Buffer* from = nullptr;
  uint64_t from_offset = 0;
  uint64_t bytes = 0;
};

/// Where experts that stay lie while the device has memory of its own for some of them.
struct ExpertMemory {
  /// Slots of slot_bytes in memory that the device reads slowly; null: all are in its own, and none
  /// of them moves.
  const Buffer* far = nullptr;
  /// Room of its own for a few that are chosen, or null. Its contents matter to nobody between two
  /// calls of expert_ffn().
  Buffer* landing = nullptr;
  uint64_t slot_bytes = 0;    // multiples of 16
  uint64_t expert_bytes = 0;  // of a slot, those of an expert
};

/// Something that recorded work depends on (a pinned expert lease); destroyed once that work has
/// finished.
class Retained {
 public:
  virtual ~Retained() = default;
};

class Encoder {
 public:
  virtual ~Encoder() = default;

  // --- Memory ---

  /// Uninitialised memory, valid until the enclosing ScratchScope ends. Never allocates from the
  /// system: aborts past the bytes the encoder was created with, which the dry run has measured.
  virtual Tensor scratch(const Shape& shape, DType dtype) = 0;
  virtual size_t scratch_mark() const = 0;
  virtual void scratch_release(size_t mark) = 0;
  virtual void keep_alive(std::unique_ptr<Retained> resource) = 0;

  // --- Host transfers ---

  /// Copies `from` into a contiguous tensor, in order with the work recorded before. Sizes must
  /// match.
  virtual void write(Tensor to, std::span<const std::byte> from) = 0;
  /// Waits for the work recorded so far, then copies a contiguous tensor out. Fails with the sticky
  /// error.
  virtual Status read(std::span<std::byte> to, Tensor from) = 0;

  /// Work of the host on the threads that compute here, if any do: fn(0) to fn(count - 1), perhaps
  /// at once. Returns when all have run; recorded work may run meanwhile.
  virtual void run_on_host(int64_t count, const std::function<void(int64_t)>& fn) {
    for (int64_t i = 0; i < count; ++i) fn(i);
  }

  // --- Copies beside recorded work: only where Device::copies_beside() ---

  /// Copies, once the work before `after` has finished, after the copies of earlier calls; what is
  /// recorded runs meanwhile. The buffers must live until it is done. Errors stick to the encoder.
  virtual CopyId copy_beside(std::span<const BufferCopy> copies, EventId after);
  /// Work recorded from now on waits, on the device, for these copies and all before them.
  virtual void await_copies(CopyId last);
  /// True once these copies and all before them are done, or an error has ended them. Never blocks.
  virtual bool has_copied(CopyId last);

  // --- Element-wise and rows ---

  /// out = x. Any strides, same shape, f32.
  virtual void copy(Tensor out, Tensor x) = 0;
  /// out = a + b. out may be a or b.
  virtual void add(Tensor out, Tensor a, Tensor b) = 0;
  /// out = x * activation(gate), elementwise. gate has x's shape, or innermost extent 1 (one gate a
  /// row). out may be x.
  virtual void mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) = 0;
  /// out = x / sqrt(mean(x^2) + eps) * weight over the innermost extent. weight f32 [cols], or
  /// [some, cols]: row r takes its row r % some. out may be x.
  virtual void rms_norm(Tensor out, Tensor x, Tensor weight, float eps) = 0;
  /// out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight over the innermost extent. weight
  /// f32 [cols]. out may be x.
  virtual void layer_norm(Tensor out, Tensor x, Tensor weight, float eps) = 0;

  /// x[t, c] += bias[c]. x f32 [n, cols] contiguous, bias f32 [cols].
  virtual void add_bias(Tensor x, Tensor bias) = 0;
  /// out = x * factor. out may be x.
  virtual void scale(Tensor out, Tensor x, float factor) = 0;
  /// x = cap * tanh(x / cap), in place.
  virtual void soft_cap(Tensor x, float cap) = 0;

  // --- Residuals of several streams ---

  /// out[t] = the sum over i, in order, of read[t, i] * x[t, i], and the other gates of n tokens,
  /// all from logits [n, (2 + streams) * streams], which are those of read | write | mix:
  ///   read = sigmoid(logit * scale[0] + base) + eps;  write = 2 sigmoid(logit * scale[1] + base);
  ///   mix = softmax over the last index of (logit * scale[2] + base), + eps; then divided by (sum
  ///   + eps) of its columns, and iterations - 1 times of its rows and again of its columns.
  /// x f32 [n, streams, cols], out [n, cols]; all contiguous. With null gates there is read alone,
  /// from logits [n, streams].
  virtual void read_streams(Tensor out, const StreamGates& gates, Tensor x, Tensor logits,
                            const StreamGateOptions& options) = 0;
  /// out[t, j] = write[t, j] * branch[t] + sum over i, in order, of mix[t, i, j] * x[t, i]. Without
  /// a mix it is x[t, j] that is added, and write holds logits: 2 sigmoid(write[t, j]) is the gate.
  /// x and out [n, streams, cols], contiguous and apart; branch [n, cols].
  virtual void expand_streams(Tensor out, Tensor x, Tensor branch, const StreamGates& gates) = 0;
  /// out[t] = sum over j, in order, of x[t, j] * sigmoid(gates[t, j]). x and gates [n, streams,
  /// cols], out [n, cols]; all contiguous.
  virtual void sum_gated(Tensor out, Tensor x, Tensor gates) = 0;
  /// out[t, j] = sign(d) * sqrt(max(|d|, least)) with d = scale * (a[t, j] . b[t, j]), 0 where d
  /// is. a, b f32 [n, streams, cols], contiguous; out f32 [n, streams], contiguous.
  virtual void root_dots(Tensor out, Tensor a, Tensor b, const RootDotOptions& options) = 0;

  /// The k greatest of each row of x f32 [n, cols], best first, and where they stand: values f32
  /// [n, k], ids i32 [n, k], both contiguous, k at most kTopRowsMax and cols. Equal ones go to the
  /// lower id. NaN sorts first, before everything, like +infinity.
  virtual void top_rows(Tensor values, Tensor ids, Tensor x) = 0;

  // --- Weights ---

  /// out[i] = row token_ids[i] of the table. token_ids i32 [n], every id below table.rows; out [n,
  /// table.cols].
  virtual void embed(Tensor out, const Weight& table, Tensor token_ids) = 0;
  /// out[n, rows] = x[n, cols] * W^T. out and x contiguous.
  virtual void linear(Tensor out, Tensor x, const Weight& weight) = 0;

  /// Per head, out[t, h, r] = sum_c W[row(h, r), c] * x[t, h, c]. x [n, heads, cols],
  /// out [n, heads, rows_per_head]; any strides but the innermost.
  virtual void head_linear(Tensor out, Tensor x, const Weight& weight, const HeadRows& rows) = 0;
  /// Per head with the matrix transposed, out[t, h, c] = sum_r x[t, h, r] * W[row(h, r), c].
  /// x [n, heads, rows_per_head], out [n, heads, cols].
  virtual void head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                                      const HeadRows& rows) = 0;

  // --- Attention ---

  /// Rotates x [n, heads, head_dim] in place. positions i32 [n]; inverse_frequencies f32
  /// [rotary_dim / 2].
  virtual void rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
                    const RopeOptions& options) = 0;
  /// Appends k [n, kv_heads, head_dim] and v [n, kv_heads, v_head_dim] to each sequence's cache at
  /// its kv.length. Then q [n, heads, head_dim] attends, causally, to what each token sees of its
  /// own sequence; query head h reads kv head h / (heads / kv_heads). A null v means that the
  /// pages of values are views of the pages of keys. out [n, heads, v_head_dim]. With selected
  /// keys, groups divide kv_heads; a token that attends to keys 0 to m - 1 of a selection has the
  /// bits of one at position m - 1 whose cache holds these keys alone. Then it may take scratch for
  /// the keys and values that one token attends to. Pooled keys are appended as select_keys() does;
  /// a token that attends to m keys, those of pools before those of tokens, has such bits too.
  virtual void attention(Tensor out, Tensor q, Tensor k, Tensor v,
                         std::span<const KvRows> sequences, const AttentionOptions& options) = 0;
  /// The same for one sequence.
  void attention(Tensor out, Tensor q, Tensor k, Tensor v, const KvView& kv,
                 const AttentionOptions& options) {
    const KvRows all{q.dim(0), kv};
    attention(out, q, k, v, std::span(&all, 1), options);
  }

  /// Latent attention: norms the latents' first columns and turns the others and those of q, both
  /// in place, appends the latents to the cache, attends with every head's query over latents and
  /// takes the result to values. q [n, heads, nope_dim + rope_dim], whose rotary part may be left
  /// as it was; latent [n, rank + rope_dim]; out [n, heads, v_dim]; pages of values are views of
  /// the pages of keys. Takes scratch for [n, heads, 2 * rank + rope_dim]; made of other operations
  /// unless a device knows better.
  virtual void latent_attention(Tensor out, Tensor q, Tensor latent, Tensor positions,
                                std::span<const KvRows> sequences, const LatentHeads& heads);
  /// The same for one sequence.
  void latent_attention(Tensor out, Tensor q, Tensor latent, Tensor positions, const KvView& kv,
                        const LatentHeads& heads) {
    const KvRows all{q.dim(0), kv};
    latent_attention(out, q, latent, positions, std::span(&all, 1), heads);
  }

  /// Appends k [n, 1, dim] to each sequence's pages of keys, then chooses ids.dim(2) candidates for
  /// each token and group. KeySelection says what ids are, SelectOptions how q [n, index_heads,
  /// dim] and head_weights f32 [n, index_heads], or null, judge candidates. The index heads are
  /// divided evenly into as many runs as ids has groups. Pages of keys are f32 or f16. Nobody looks
  /// at pages of values. Whole candidates have their key in the rows of their tokens: pages are
  /// [page_tokens, 1, dim / unit], and of k only the rows of the last tokens so far of candidates
  /// are looked at.
  virtual void select_keys(Tensor ids, Tensor q, Tensor k, Tensor head_weights,
                           std::span<const KvRows> sequences, const SelectOptions& options) = 0;

  /// Pools the tokens [p - p % unit, p] of a row's sequence, p being its position. A column sums
  /// x[s] times the softmax over these s of gate[s] + bias[s % unit]; without a gate it is their
  /// mean. x, gate, out [n, cols] contiguous; bias f32 [unit, cols]; positions i32 [n].
  /// Row j of a sequence's state f32 [unit - 1, 2 * cols] holds x | gate of the last token at a
  /// position that is j modulo unit, and is updated; without a gate it is [unit - 1, cols].
  /// Pools that overlap: out is [n, cols / 2], and the state [2 * unit, 2 * cols] of the last
  /// tokens at positions modulo 2 * unit.
  virtual void pool_rows(Tensor out, Tensor x, const PoolGates& gates, Tensor positions,
                         std::span<const StateRows> sequences, int64_t unit) = 0;

  // --- Convolution and recurrences ---

  /// Depthwise causal convolution, then SiLU or nothing (kIdentity). x, out [n, channels]; weight
  /// f32 [channels, kernel], the last tap multiplies the current token; a sequence's state f32
  /// [kernel - 1, channels] holds the inputs before its first row and is updated.
  virtual void causal_conv(Tensor out, Tensor x, Tensor weight, const ConvOptions& options,
                           std::span<const StateRows> sequences) = 0;
  /// The same for one sequence.
  void causal_conv(Tensor out, Tensor x, Tensor weight, const ConvOptions& options, Tensor state) {
    const StateRows all{x.dim(0), state};
    causal_conv(out, x, weight, options, std::span(&all, 1));
  }
  /// The gated delta rule over each sequence's tokens in order. qkv [n, 2 * key_heads * key_dim +
  /// value_heads * value_dim] holds q | k | v after the convolution; q and k are l2-normalised (eps
  /// 1e-6 on the sum), q scaled by key_dim^-0.5. a [n, options.decays()], b [n, value_heads]; a_log
  /// f32 [value_heads], dt_bias f32 [options.decays()]; decay = exp(-exp(a_log) * softplus(a +
  /// dt_bias)), or as options.decay_bound says, of the whole state or of each of its rows; beta =
  /// sigmoid(b). Per value head i, with key head options.key_head_of(i):
  ///   S = decay * S;  S += k (beta * (v - S^T k))^T;  out = S^T q.
  /// out [n, value_heads, value_dim]; states f32 [value_heads, key_dim, value_dim] are updated.
  virtual void gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias,
                           std::span<const StateRows> sequences,
                           const GatedDeltaOptions& options) = 0;
  /// The same for one sequence.
  void gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias,
                   Tensor state, const GatedDeltaOptions& options) {
    const StateRows all{qkv.dim(0), state};
    gated_delta(out, qkv, a, b, a_log, dt_bias, std::span(&all, 1), options);
  }
  /// Mamba-2's selective scan over each sequence's tokens in order. xbc [n, options.row_width()]
  /// holds x | B | C after the convolution; dt [n, heads]; a_log, dt_bias, skip f32 [heads]; step =
  /// softplus(dt + dt_bias). Per head h, with B and C of group options.group_of(h):
  ///   S = exp(-exp(a_log) * step) * S + B (step * x)^T;  out = S^T C + skip * x.
  /// out [n, heads, head_dim]; states f32 [heads, state_dim, head_dim] are updated.
  virtual void selective_scan(Tensor out, Tensor xbc, Tensor dt, const ScanWeights& weights,
                              std::span<const StateRows> sequences, const ScanOptions& options) = 0;
  /// The same for one sequence.
  void selective_scan(Tensor out, Tensor xbc, Tensor dt, const ScanWeights& weights, Tensor state,
                      const ScanOptions& options) {
    const StateRows all{xbc.dim(0), state};
    selective_scan(out, xbc, dt, weights, std::span(&all, 1), options);
  }

  // --- Mixture of experts ---

  /// Chooses top_k experts per token from logits f32 [n, experts].
  virtual void route(const Routes& out, Tensor logits, const RouterOptions& options) = 0;
  /// For every (token, rank) whose expert is in `ready`: slots[token, rank] = down(glu(gate x, up
  /// x)), biases included. x [n, hidden]; slots [n, top_k, hidden]; intermediate [n, top_k,
  /// moe_intermediate] is workspace. Touches no other row of slots or intermediate. The experts
  /// stay where they are until the work has finished.
  virtual void expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                          std::span<const ExpertWeights> ready, const GluOptions& glu) = 0;
  /// Says that these experts are and stay what and where they are for as long as anybody owns the
  /// vector, but for what experts_moved() says: what expert_ffn finds out about them when all are
  /// ready may be remembered. Changes no result.
  virtual void experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& /*experts*/,
                            const ExpertMemory& /*memory*/ = {}) {}
  /// Says that the experts at these places of the vector, which lie as aligned as before, have been
  /// given other addresses: work recorded from now on finds them there, earlier work where they
  /// were.
  virtual void experts_moved(const std::vector<ExpertWeights>& /*experts*/,
                             std::span<const size_t> /*which*/) {}
  /// out[t] = sum over ranks in order of weights[t, r] * slots[t, r]: arrival order cannot change
  /// the bits. Nobody looks at ids.
  virtual void combine_experts(Tensor out, Tensor slots, const Routes& routes) = 0;

  /// out[t] = down(glu(gate x[t], up x[t])), times sigmoid(out_gate[t]) if there is one: a network
  /// for every token, such as a shared expert, which a device may compute beside the experts of the
  /// expert_ffn that follows. x, out [n, hidden] contiguous; out_gate f32 [n, 1] or null. Takes
  /// scratch for two tensors [n, intermediate]; made of other operations unless a device knows
  /// better.
  virtual void gated_ffn(Tensor out, Tensor x, const GluWeights& weights, Tensor out_gate,
                         const GluOptions& options);

  /// out = glu(gate, up), elementwise. out may be gate or up.
  virtual void glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) = 0;

  // --- Submission ---

  /// Hands the recorded work to the device. Errors recorded so far surface in wait().
  virtual EventId submit() = 0;
  /// Blocks until the event has passed; releases what was kept alive for it.
  virtual Status wait(EventId event) = 0;
};

/// Gives scratch back at the end of a block, so that depth does not grow it.
class ScratchScope {
 public:
  explicit ScratchScope(Encoder& encoder) : encoder_(encoder), mark_(encoder.scratch_mark()) {}
  ~ScratchScope() { encoder_.scratch_release(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Encoder& encoder_;
  size_t mark_;
};

}  // namespace moeflux
