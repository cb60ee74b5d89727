// The hard rule: a token's bits do not depend on the chunk it came in, nor on which wave an expert
// arrived with.
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/launch/plan.h"
#include "base/format.h"
#include "quant/ggml_types.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

const std::vector<Chunks>& cuts_of_70() {
  static const std::vector<Chunks> cuts = {
      one_by_one(70), {64, 6}, {1, 2, 3, 4, 5, 6, 49}, {33, 37}};
  return cuts;
}

std::string cut_label(const NamedDevice& device, const std::string& what, const Chunks& chunks) {
  return formatted("{}[{}, {} calls]", what, device.name, chunks.size());
}

/// Runs a row-wise op over 70 tokens whole and in every cut.
void check_rows(const std::string& what, int64_t in_width, int64_t out_width,
                const std::vector<float>& x,
                const std::function<void(Session&, Tensor out, Tensor in)>& op) {
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const Tensor in = s.floats({70, in_width}, x);
    const Tensor whole = s.zeros({70, out_width});
    op(s, whole, in);
    const std::vector<float> expected = s.read(whole);
    for (const Chunks& chunks : cuts_of_70()) {
      const Tensor out = s.zeros({70, out_width});
      int64_t at = 0;
      for (const int64_t count : chunks) {
        op(s, out.slice(0, at, count), in.slice(0, at, count));
        at += count;
      }
      expect_same_bits(cut_label(*device, what, chunks), expected, s.read(out));
    }
  }
}

TEST(TokenInvariance, LinearInEveryFormat) {
  Random random(40);
  for (const QuantFormat& format : all_formats()) {
    const int64_t cols = format.is_plain() ? 650 : 640;
    const EncodedWeight w = random_weight(random, format, 13, cols);
    check_rows("linear " + format.to_string(), cols, 13, random.floats(70 * cols),
               [&](Session& s, Tensor out, Tensor in) {
                 s.encoder().run(ops::Linear{out, in, s.weight(w)});
               });
  }
}

// A single token's rows of plain numbers have a kernel of their own.
TEST(TokenInvariance, LinearOfFewPlainRows) {
  Random random(54);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int64_t cols : {8, 648, 3336}) {
      const EncodedWeight w = random_weight(random, QuantFormat::plain(dtype), 37, cols);
      check_rows(formatted("linear {}x{}", dtype_name(dtype), cols), cols, 37,
                 random.floats(70 * cols), [&](Session& s, Tensor out, Tensor in) {
                   s.encoder().run(ops::Linear{out, in, s.weight(w)});
                 });
    }
  }
}

TEST(TokenInvariance, RmsNorm) {
  Random random(41);
  const std::vector<float> w = random.floats(300);
  check_rows("rms_norm", 300, 300, random.floats(70 * 300), [&](Session& s, Tensor out, Tensor in) {
    s.encoder().run(ops::RmsNorm{out, in, s.floats({300}, w), 1e-6f});
  });
}

TEST(TokenInvariance, Route) {
  Random random(42);
  const std::vector<float> bias = random.floats(60);
  for (const bool grouped : {false, true}) {
    check_rows(
        "route", 60, 8, random.floats(70 * 60, -4.0f, 4.0f),
        [&](Session& s, Tensor out, Tensor in) {
          RouterOptions options;
          if (grouped) {
            options.score = RouterScore::kSigmoid;
            options.correction_bias = s.floats({60}, bias);
            options.num_groups = 4;
            options.groups_kept = 2;
          }
          s.encoder().run(ops::Route{{s.zeros({in.dim(0), 8}, DType::kI32), out}, in, options});
        });
  }
}

template <typename Problem>
bool is_for(const Device&, const Problem&) {
  return true;
}
bool is_for(const Device& device, const AttentionProblem& problem) {
  return (!problem.has_narrow_cache() || device.takes_narrow_cache()) &&
         (!problem.has_mixed_cache() || device.takes_mixed_cache());
}

template <typename Problem>
void check_sequence(const std::string& what, const Problem& problem, bool on_slow_devices = true) {
  ASSERT_EQ(problem.n, 70);
  for (const NamedDevice* device : one_device_per_family()) {
    if (device->is_slow && !on_slow_devices) continue;
    if (!is_for(*device->device, problem)) continue;
    Session whole(*device->device);
    const std::vector<float> expected = problem.run(whole, {70});
    for (const Chunks& chunks : cuts_of_70()) {
      Session s(*device->device);
      expect_same_bits(cut_label(*device, what, chunks), expected, problem.run(s, chunks));
    }
  }
}

TEST(TokenInvariance, Attention) {
  Random random(43);
  check_sequence("attention", AttentionProblem::make(random, 6, 2, 64, 48, 32, 70));
  check_sequence("attention", AttentionProblem::make(random, 7, 1, 20, 20, 5, 70));
}

TEST(TokenInvariance, AttentionWithBiasesByDistance) {
  Random random(58);
  AttentionProblem p = AttentionProblem::make(random, 6, 2, 64, 48, 32, 70);
  p.add_biases(random, 40);
  check_sequence("attention with biases", p);
  p.window = 30;
  check_sequence("attention with biases in a ring", p);
}

TEST(TokenInvariance, AttentionOverPagesOfF16) {
  Random random(56);
  AttentionProblem p = AttentionProblem::make(random, 6, 2, 64, 44, 32, 70);
  p.k_type = p.v_type = DType::kF16;
  check_sequence("attention over f16", p);
  // From the largest numbers of f16 to the smallest: a scaled row's smaller halves are zeros.
  for (std::vector<float>* rows : {&p.k, &p.v}) {
    const std::vector<float> sizes = random.floats(rows->size(), -24.0f, 15.0f);
    for (size_t i = 0; i < rows->size(); ++i) {
      (*rows)[i] = std::ldexp((*rows)[i], static_cast<int>(sizes[i]));
    }
  }
  check_sequence("attention over f16 of all sizes", p);
  p.window = 20;
  check_sequence("attention over f16 in a ring", p);
}

TEST(TokenInvariance, AttentionOverPagesOf8Bits) {
  Random random(57);
  AttentionProblem p = AttentionProblem::make(random, 6, 2, 64, 32, 32, 70);
  p.k_type = p.v_type = DType::kI8;
  check_sequence("attention over 8 bits", p);
  p.window = 20;
  check_sequence("attention over 8 bits in a ring", p);
  p.window = 0;
  p.v_type = DType::kF16;
  check_sequence("attention over keys of 8 bits", p);
}

TEST(TokenInvariance, AttentionWithWindowsInRings) {
  Random random(48);
  for (const int64_t window : {1, 9, 33, 69, 200}) {
    AttentionProblem p = AttentionProblem::make(random, 6, 2, 48, 32, 32, 70);
    p.window = window;
    check_sequence("attention in a ring", p);
    p.sinks = random.floats(6, -5.0f, 5.0f);
    check_sequence("attention in a ring with sinks", p);
  }
}

TEST(TokenInvariance, AttentionOfManyHeadsOverSharedPages) {
  Random random(49);
  AttentionProblem p = AttentionProblem::make(random, 50, 1, 72, 64, 32, 70);
  p.values_are_keys = true;
  check_sequence("latent attention", p);
  p.window = 20;
  check_sequence("latent attention in a ring", p, /*on_slow_devices=*/false);
}

TEST(TokenInvariance, AttentionOverHundredsOfKeysInAnyCut) {
  Random random(54);
  AttentionProblem p = AttentionProblem::make(random, 1, 1, 16, 16, 256, 700);
  for (const int64_t window : {0, 550}) {
    p.window = window;
    if (window > 0) p.sinks = random.floats(1, -5.0f, 5.0f);
    for (const NamedDevice* device : one_device_per_family()) {
      Session whole(*device->device);
      const std::vector<float> expected = p.run(whole, {700});
      // Few tokens far into the text are where a GPU divides the keys of one query among groups.
      const Chunks chunks = {520, 60, 1, 119};
      Session s(*device->device);
      expect_same_bits(cut_label(*device, "attention over 700 keys", chunks), expected,
                       p.run(s, chunks));
    }
  }
}

/// The same bits from every cut on every number of threads.
template <typename Problem>
void check_everywhere(const std::string& what, const Problem& problem,
                      const std::vector<Chunks>& cuts, bool on_slow_devices = true) {
  std::string family;
  std::vector<float> expected;
  for (const NamedDevice& device : devices()) {
    if (device.is_slow && !on_slow_devices) continue;
    if (!is_for(*device.device, problem)) continue;
    if (device.family != family) {
      Session whole(*device.device);
      expected = problem.run(whole, {problem.n});
      family = device.family;
    }
    for (const Chunks& chunks : cuts) {
      ASSERT_EQ(total(chunks), problem.n);
      Session s(*device.device);
      expect_same_bits(cut_label(device, what, chunks), expected, problem.run(s, chunks));
    }
  }
}

/// Calls of `each` tokens, then what is left.
Chunks in_calls_of(int64_t each, int64_t n) {
  Chunks chunks(static_cast<size_t>(n / each), each);
  if (n % each > 0) chunks.push_back(n % each);
  return chunks;
}

/// `first` tokens at once, then the others one by one.
Chunks alone_after(int64_t first, int64_t n) {
  Chunks chunks = one_by_one(n - first);
  chunks.insert(chunks.begin(), first);
  return chunks;
}

// Longer than two of the segments that a context of few tokens is cut into. Slow devices show the
// same over hundreds of keys, above.
TEST(TokenInvariance, AttentionAtDepth) {
  Random random(54);
  constexpr int64_t kLength = 1100;
  const std::vector<Chunks> cuts = {in_calls_of(7, kLength),
                                    in_calls_of(48, kLength),
                                    in_calls_of(512, kLength),
                                    alone_after(1000, kLength),
                                    {500, 1, 30, 1, 500, 60, 8}};
  struct Case {
    int64_t kv_heads;
    int64_t page_tokens;
    int64_t window;
    bool has_sinks;
  };
  for (const Case& c :
       {Case{1, 24, 0, false}, {2, 256, 0, true}, {1, 256, 600, true}, {2, 24, 64, false}}) {
    AttentionProblem p =
        AttentionProblem::make(random, 4, c.kv_heads, 24, 20, c.page_tokens, kLength);
    p.window = c.window;
    if (c.has_sinks) p.sinks = random.floats(4, -5.0f, 5.0f);
    check_everywhere("attention", p, cuts, /*on_slow_devices=*/false);
  }
}

TEST(TokenInvariance, LatentAttentionAtDepth) {
  Random random(55);
  AttentionProblem p = AttentionProblem::make(random, 70, 1, 40, 32, 64, 530);
  p.values_are_keys = true;
  check_everywhere("latent attention", p, {in_calls_of(48, 530), alone_after(524, 530)},
                   /*on_slow_devices=*/false);
}

TEST(TokenInvariance, HeadLinearInEveryFormat) {
  Random random(53);
  const HeadRows rows{.head_stride = 20, .row_begin = 5, .rows_per_head = 11};
  for (const QuantFormat& format : all_formats()) {
    const int64_t cols = format.is_plain() ? 301 : 384;
    for (const bool transposed : {false, true}) {
      check_sequence("head_linear " + format.to_string(),
                     HeadProblem::make(random, format, rows, 3, cols, 70, transposed),
                     format.dtype == DType::kBf16 && format.group_size != 128);
    }
  }
}

// Depths that are whole parts, which many tokens multiply by tiles of their own.
TEST(TokenInvariance, HeadLinearOfWholePartsInEveryFormat) {
  Random random(59);
  const HeadRows rows{.head_stride = 76, .row_begin = 1, .rows_per_head = 72};
  for (const QuantFormat& format : block_and_some_formats()) {
    for (const int64_t cols : {256, 768}) {
      for (const bool transposed : {false, true}) {
        check_sequence("head_linear " + format.to_string(),
                       HeadProblem::make(random, format, rows, 2, cols, 70, transposed), false);
      }
    }
  }
}

// Depths that give columns to some lanes, to all, and to some a second time; sums that underflow to
// zeros of either sign.
TEST(TokenInvariance, HeadLinearOfAnyDepth) {
  Random random(61);
  const QuantFormat q4_0 = *find_ggml_type("Q4_0")->format;
  const HeadRows rows{.head_stride = 24, .row_begin = 0, .rows_per_head = 24};
  for (const int64_t cols : {32, 96, 128, 288}) {
    for (const bool transposed : {false, true}) {
      HeadProblem p = HeadProblem::make(random, q4_0, rows, 2, cols, 70, transposed);
      for (size_t i = 0; i < p.x.size() / 2; ++i) p.x[i] *= 1e-44f;
      check_sequence(formatted("head_linear of {} columns", cols), p);
    }
  }
}

TEST(TokenInvariance, CausalConv) {
  Random random(44);
  for (const int64_t taps : {2, 4, 7}) {
    for (const int64_t channels : {601, 604}) {
      ConvProblem p = ConvProblem::make(random, channels, taps, 70);
      check_everywhere("causal_conv", p, cuts_of_70());
      p.bias = random.floats(channels);
      check_everywhere("causal_conv with a bias", p, cuts_of_70());
    }
  }
}

TEST(TokenInvariance, TokenConv) {
  Random random(46);
  for (const int64_t taps : {2, 4, 7}) {
    check_everywhere("token_conv", TokenConvProblem::make(random, 603, taps, 70), cuts_of_70());
  }
}

void check_gated_delta(uint32_t seed, std::initializer_list<GatedDeltaOptions> shapes) {
  Random random(seed);
  for (const GatedDeltaOptions& o : shapes) {
    std::vector<Chunks> cuts = cuts_of_70();
    cuts.push_back(in_calls_of(7, 70));
    cuts.push_back(alone_after(48, 70));
    check_everywhere("gated_delta", DeltaProblem::make(random, o, 70), cuts);
  }
}

TEST(TokenInvariance, GatedDelta) { check_gated_delta(45, {{2, 4, 32, 72}, {1, 2, 128, 128}}); }

TEST(TokenInvariance, GatedDeltaOfUnevenHeads) {
  check_gated_delta(46, {{1, 3, 40, 203}, {1, 1, 160, 20}});
}

// The kernels are those of one decay a head, above, with more to bring of each token.
TEST(TokenInvariance, GatedDeltaWithDecaysOfRows) {
  Random random(49);
  for (const GatedDeltaOptions& o :
       {GatedDeltaOptions{1, 2, 32, 40, false, true}, {1, 1, 128, 128, false, true, -5.0f}}) {
    check_everywhere("gated_delta by rows", DeltaProblem::make(random, o, 21),
                     {one_by_one(21), {7, 1, 13}});
  }
}

TEST(TokenInvariance, SelectiveScan) {
  Random random(50);
  for (const ScanOptions& o : {ScanOptions{4, 40, 2, 24}, {1, 64, 1, 128}}) {
    check_everywhere("selective_scan", ScanProblem::make(random, o, 37),
                     {one_by_one(37), {7, 1, 17, 12}});
  }
}

TEST(TokenInvariance, GatedDeltaInWhateverSharedMemoryThereIs) {
  Random random(48);
  for (const GatedDeltaOptions& o :
       {GatedDeltaOptions{1, 2, 128, 128}, {1, 1, 160, 20}, {1, 1, 128, 40, false, true}}) {
    const DeltaProblem p = DeltaProblem::make(random, o, 21);
    std::vector<std::vector<float>> results;
    for (const uint32_t shared_bytes : {gpu::kMmaSharedBytesMax, gpu::kSharedBytesMax}) {
      const auto device =
          make_gpu_device(gpu::make_emulator_platform({.seed = 3, .shared_bytes = shared_bytes}));
      Session s(*device);
      results.push_back(p.run(s, {21}));
    }
    expect_same_bits(formatted("keys of {}", o.key_dim), results[0], results[1]);
  }
}

/// Row-major ones and tiles.
std::vector<QuantFormat> expert_formats() {
  std::vector<QuantFormat> formats = some_formats();
  for (const int bits : {4, 8}) {
    formats.push_back(QuantFormat::affine(bits, 32, DType::kF16).with_order(WeightOrder::kTiled));
  }
  return formats;
}

TEST(TokenInvariance, ExpertFfn) {
  Random random(46);
  for (const QuantFormat& format : expert_formats()) {
    MoeProblem p = MoeProblem::make(
        random, format, {.hidden = 128, .intermediate = 128, .experts = 4, .top_k = 2, .n = 40});
    p.add_biases(random, DType::kBf16);
    p.glu = {.alpha = 1.702f, .limit = 7.0f, .up_offset = 1.0f};
    check_token_invariance(formatted("expert_ffn {}", format.to_string()), p);
  }
}

TEST(ArrivalInvariance, ExpertFfnInAnyPartitionOfReadyExperts) {
  Random random(47);
  for (const QuantFormat& format : expert_formats()) {
    const MoeProblem p = MoeProblem::make(
        random, format, {.hidden = 128, .intermediate = 128, .experts = 6, .top_k = 3, .n = 19});
    const std::vector<std::vector<std::vector<int32_t>>> partitions = {
        {{0}, {1}, {2}, {3}, {4}, {5}}, {{5, 4, 3, 2, 1, 0}}, {{3, 1}, {}, {0, 5, 4}, {2}}};
    for (const NamedDevice* device : one_device_per_family()) {
      Session whole(*device->device);
      const std::vector<float> expected = p.run(whole, p.all_at_once());
      for (const auto& waves : partitions) {
        Session s(*device->device);
        expect_same_bits(formatted("expert_ffn {}[{}, {} waves]", format.to_string(), device->name,
                                   waves.size()),
                         expected, p.run(s, waves));
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
