// Latent attention of few tokens: attention itself with a launch before and one after it.
#include "backend/ops/latent_attention.h"

#include <algorithm>
#include <bit>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/attention_plans.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

// Tokens that these kernels take together: four take 31 us for 44 on an H200, behind 64.
constexpr int64_t kLatentTokensMax = 4;

// Rows of groups for a token's work besides its heads: thirty SIMD groups turn 128 heads.
constexpr uint32_t kSlicesBehindHeads = 2;

constexpr uint32_t bytes_of(uint32_t words) { return words * static_cast<uint32_t>(sizeof(u32)); }

// Whether the kernels of latent.h read the matrix of heads as it lies.
bool fits_latent(const Weight& weight) {
  const QuantFormat& f = weight.format;
  return f.is_affine() && (f.bits == 4 || f.bits == 8) && f.dtype != DType::kF32 &&
         f.order == WeightOrder::kRowMajor && weight.cols % 32 == 0 &&
         weight.cols <= int64_t{kLatentRankMax} && matrix_layout(weight).wide != 0;
}

HeadMatrix head_matrix(const Weight& weight, const HeadRows& rows) {
  HeadMatrix m{};
  m.weight = matrix_layout(weight);
  m.head_stride = static_cast<u32>(rows.head_stride);
  m.row_begin = static_cast<u32>(rows.row_begin);
  m.rows_per_head = static_cast<u32>(rows.rows_per_head);
  m.lane_shift = static_cast<u32>(std::countr_zero(std::bit_ceil(m.weight.cols / 32)));
  return m;
}

/// Groups that have all rows of a head.
uint32_t row_groups(const HeadMatrix& m) {
  return groups_for(m.rows_per_head, (kLatentThreads >> m.lane_shift) * kLatentRowsHeld);
}

// Whether the kernels of latent_few.h do. They take two thirds of the time for two tokens and more;
// a single one's groups would not be spread evenly, as they stand beside those of the launch
// before.
bool fits_latent_one(const Weight& weight, const HeadMatrix& m) {
  return m.weight.format == 4 && m.weight.group_shift == 6 &&
         m.weight.cols == u32{kLatentOneCols} && m.rows_per_head == u32{kLatentOneRows} &&
         m.weight.wide != 0 && has_wide_scales(weight);
}

// Whether test(page) is true of all pages of all sequences.
template <typename Test>
bool all_pages(std::span<const KvRows> sequences, const Test& test) {
  return std::all_of(sequences.begin(), sequences.end(), [&](const KvRows& s) {
    return std::all_of(s.kv.k_pages.begin(), s.kv.k_pages.end(), test);
  });
}

// The rows of a sequence, or one of each of several, and the tensors that launches hand on.
struct LatentRows {
  const ops::LatentAttention& op;
  const KvView& kv;  // of the first sequence
  Tensor query;      // [n, heads, rank + rope_dim]
  Tensor mixed;      // and [n, heads, rank]
};

void record_queries(Recorder& recorder, const LatentRows& rows, const KvTables& tables) {
  const auto& [op, kv, query, mixed] = rows;
  const auto& [out, q, latent, positions, sequences, heads] = op;
  LatentQueriesParams p{};
  p.up = head_matrix(heads.k_up, heads.k_rows);
  p.q = heads_layout(q);
  p.query = heads_layout(query);
  p.latent_stride = row_stride(latent);
  p.page_stride = heads_layout(kv.k_pages.front()).token_stride;
  p.heads = static_cast<u32>(q.dim(1));
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  p.begin = static_cast<u32>(kv.length);
  p.lengths = tables.lengths;
  p.half = static_cast<u32>(heads.rope.rotary_dim / 2);
  p.interleaved = heads.rope.interleaved ? 1 : 0;
  p.rank = static_cast<u32>(heads.norm.num_elements());
  p.nope = static_cast<u32>(q.dim(2) - heads.rope.rotary_dim);
  const bool is_wide_latent =
      is_wide(latent) && is_wide(heads.norm) && all_pages(sequences, is_wide) && p.rank % 4 == 0;
  p.wide_latent = is_wide_latent ? 1 : 0;
  p.f16 = kv.k_pages.front().dtype == DType::kF16 ? 1 : 0;
  p.factor = heads.rope.attention_factor;
  p.epsilon = heads.norm_eps;
  const bool by_rows = heads.k_up_is_transposed;
  const bool has4 = heads.k_up.format.bits == 4;
  const KernelId kernel =
      by_rows ? has4 ? KernelId::latent_queries_rows_w4 : KernelId::latent_queries_rows_w8
      : has4  ? KernelId::latent_queries_w4
              : KernelId::latent_queries_w8;
  constexpr uint32_t kParts = kLatentThreads / (kLatentColumns / 8);
  const uint32_t groups = by_rows ? row_groups(p.up) : groups_for(p.rank, kLatentColumns);
  const uint32_t shared_words = by_rows ? uint32_t{kLatentRankMax} : kParts * kLatentColumns;
  p.groups = groups;
  const auto is_written = [&](const Tensor& tensor) { return recorder.has_just_written(tensor); };
  const auto is_older = [&](const Tensor& page) { return !is_written(page); };
  p.early = is_written(positions) || !all_pages(sequences, is_older) ? 0 : 1;
  Plan plan = make_plan(kernel, {groups, rows_of(latent), p.heads + 1}, kLatentThreads,
                        shared_words * static_cast<uint32_t>(sizeof(float)));
  if (!by_rows && rows_of(latent) > 1 && fits_latent_one(heads.k_up, p.up)) {
    p.groups = groups * kSlicesBehindHeads;
    plan = make_plan(KernelId::latent_queries_few_w4,
                     {groups, rows_of(latent), p.heads + kSlicesBehindHeads},
                     kLatentOneQueryThreads, bytes_of(kLatentOneQueryWords));
  }
  plan.set_params(p);
  bind_weight(plan, heads.k_up);
  plan.bind(range_of(q, Access::kRead));
  plan.bind(range_of(heads.norm, Access::kRead));
  plan.bind(range_of(positions, Access::kRead));
  plan.bind(range_of(heads.inverse_frequencies, Access::kRead));
  plan.bind(tables.keys);
  plan.bind(range_of(latent, Access::kReadWrite));
  bind_output(plan, query);
  recorder.record(plan);
}

void record_values(Recorder& recorder, const LatentRows& rows, const AttentionResult& result) {
  const ops::LatentAttention& op = rows.op;
  const LatentHeads& heads = op.heads;
  const AttentionParams& attention = result.params;
  LatentValuesParams p{};
  p.attention = attention;
  p.up = head_matrix(heads.v_up, heads.v_rows);
  p.out = heads_layout(op.out);
  Plan plan = make_plan(
      heads.v_up.format.bits == 4 ? KernelId::latent_values_w4 : KernelId::latent_values_w8,
      {row_groups(p.up), attention.tokens, attention.heads}, kLatentThreads,
      kLatentRankMax * static_cast<uint32_t>(sizeof(float)));
  if (attention.tokens > 1 && fits_latent_one(heads.v_up, p.up)) {
    plan = make_plan(KernelId::latent_values_few_w4,
                     {kLatentOneRows / kLatentOneValueRows, attention.tokens, attention.heads},
                     kLatentOneValueThreads, bytes_of(kLatentOneValueWords));
  }
  plan.set_params(p);
  bind_weight(plan, heads.v_up);
  plan.bind(attention.walks != 0 ? range_of(rows.mixed, Access::kRead) : Binding{});
  Binding read = result.partials;
  read.access = Access::kRead;
  plan.bind(read);
  bind_output(plan, op.out);
  recorder.record(plan);
}

void record_latent_attention(Recorder& recorder, const LatentRows& rows) {
  KvTables tables;
  if (!place_tables(recorder, rows.op.sequences, tables)) return;
  record_queries(recorder, rows, tables);
  const AttentionHeads attention{rows.mixed, rows.query, 1, rows.kv, {.scale = rows.op.heads.scale},
                                 tables,     true};
  AttentionResult result;
  if (!record_attention(recorder, attention, result)) return;
  if (result.last) recorder.record(result.last->plan);
  if (result.params.walks == 0 && result.params.resumes != 0) {  // the last of several pieces
    recorder.record(merge_op(attention, result).plan);
    result.params.walks = 1;
  }
  record_values(recorder, rows, result);
}

// Whether there are kernels for these tokens of a sequence.
bool fits_latent_kernels(const ops::LatentAttention& op, const KvView& kv) {
  const LatentHeads& heads = op.heads;
  if (!lie_alike(op.sequences)) return false;
  const int64_t nope = op.q.dim(2) - heads.rope.rotary_dim;
  // The launches that write latents to their pages write no codes.
  return kv.k_pages.front().dtype != DType::kI8 && heads.selected.is_null() && heads.window == 0 &&
         heads.sinks.is_null() && !heads.are_made && op.q.dim(0) <= kLatentTokensMax &&
         fits_latent(heads.k_up) && fits_latent(heads.v_up) &&
         (heads.k_up_is_transposed || nope % int64_t{kHeadPartRows} == 0) &&
         heads.v_up.cols + heads.rope.rotary_dim == op.latent.dim(1) &&
         heads.rope.rotary_dim % 2 == 0 && heads.rope.unit == 1;
}

void attend_latent(GpuContext& gpu, const ops::LatentAttention& op) {
  if (op.q.dim(0) == 0) return;
  Encoder& encoder = gpu.encoder();
  const KvView& kv = op.sequences.front().kv;
  if (!fits_latent_kernels(op, kv)) return op.compose(encoder);
  ScratchScope scope(encoder);
  const int64_t rank = op.heads.v_up.cols;
  const Shape query{op.q.dim(0), op.q.dim(1), op.latent.dim(1)};
  const Shape mixed{op.q.dim(0), op.q.dim(1), rank};
  const LatentRows rows{op, kv, encoder.scratch(query, DType::kF32),
                        encoder.scratch(mixed, DType::kF32)};
  gpu.flush();  // so that the launch before is known
  record_latent_attention(gpu.recorder(), rows);
}

// Whether all tokens of the sequences attend to all they see, whatever is chosen for others.
bool choose_nothing(const KeySelection& selected, std::span<const KvRows> sequences) {
  return std::all_of(sequences.begin(), sequences.end(), [&](const KvRows& s) {
    return selected.dense_rows(s.rows, s.kv.length) == s.rows;
  });
}

}  // namespace

void run(GpuContext& gpu, const ops::LatentAttention& op) {
  for_each_run(op.sequences, op.rows(), /*joins=*/true,
               [&](std::span<const KvRows> run, const auto& part) {
                 ops::LatentAttention own =
                     op.part(static_cast<size_t>(run.data() - op.sequences.data()), part);
                 own.sequences = run;
                 KeySelection& selected = own.heads.selected;
                 if (!selected.is_null() && choose_nothing(selected, run)) selected = {};
                 attend_latent(gpu, own);
               });
}

}  // namespace moeflux::gpu
