// The CPU's int8 precision: bits against a scalar definition, errors against the reference, and
// what must not change them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa_choice.h"
#include "base/format.h"
#include "quant/formats/affine.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// Int8 devices at every instruction set this machine has, with 1, 2 and 3 threads.
const std::vector<NamedDevice>& int8_devices() {
  static const std::vector<NamedDevice> all = [] {
    std::vector<NamedDevice> list;
    for (const cpu::KernelSet* kernels : cpu::supported_kernels()) {
      for (const int threads : {1, 2, 3}) {
        const std::string isa = kernels->name;
        auto device =
            make_cpu_device({.threads = threads, .isa = isa, .precision = Precision::kInt8});
        EXPECT_TRUE(device.ok());
        list.push_back({formatted("{} int8/{}", isa, threads), isa, std::move(device).value()});
      }
    }
    return list;
  }();
  return all;
}

QuantFormat tiles(int bits, int group_size, DType dtype) {
  return QuantFormat::affine(bits, group_size, dtype).with_order(WeightOrder::kTiled);
}

std::vector<QuantFormat> int8_formats() {
  std::vector<QuantFormat> formats;
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const int bits : {4, 8}) {
      for (const int group : {32, 64, 128}) {
        formats.push_back(QuantFormat::affine(bits, group, dtype));
      }
    }
  }
  return formats;
}

/// One group of a token as int8.
struct Int8Group {
  float scale = 0.0f;
  std::vector<int> codes;
  int sum = 0;
};

Int8Group quantize(std::span<const float> x) {
  Int8Group group;
  group.codes.assign(x.size(), 0);
  const float most = largest(x);
  if (most < 1e-35f) return group;
  group.scale = most / 127.0f;
  const float inverse = 127.0f / most;
  for (size_t i = 0; i < x.size(); ++i) {
    group.codes[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
    group.sum += group.codes[i];
  }
  return group;
}

struct Problem {
  int64_t n;
  int64_t rows;
  int64_t cols;
};

/// The definition of an int8 product, out [n, rows]. w is row-major.
std::vector<float> define_linear(const EncodedWeight& w, const std::vector<float>& x, int64_t n) {
  const int64_t size = w.format.group_size;
  const int64_t groups = w.cols / size;
  std::vector<float> out;
  for (int64_t t = 0; t < n; ++t) {
    std::vector<Int8Group> quantized;
    for (int64_t g = 0; g < groups; ++g) {
      quantized.push_back(quantize(std::span(x).subspan(static_cast<size_t>(t * w.cols + g * size),
                                                        static_cast<size_t>(size))));
    }
    for (int64_t r = 0; r < w.rows; ++r) {
      const std::byte* codes = w.data.data() + r * w.cols * w.format.bits / 8;
      float acc = 0.0f;
      for (int64_t g = 0; g < groups; ++g) {
        const Int8Group& q = quantized[static_cast<size_t>(g)];
        int dot = 0;
        for (int64_t i = 0; i < size; ++i) {
          const auto code = static_cast<int>(affine::code_at(codes, g * size + i, w.format.bits));
          dot += code * q.codes[static_cast<size_t>(i)];
        }
        const float scale = load_float(w.scales.data(), r * groups + g, w.format.dtype);
        const float bias = load_float(w.biases.data(), r * groups + g, w.format.dtype);
        acc = std::fma(scale * q.scale, static_cast<float>(dot), acc);
        acc = std::fma(bias, q.scale * static_cast<float>(q.sum), acc);
      }
      out.push_back(acc);
    }
  }
  return out;
}

std::vector<float> run_linear(Device& device, const EncodedWeight& w, const std::vector<float>& x,
                              int64_t n) {
  Session s(device);
  const Tensor out = s.zeros({n, w.rows});
  s.encoder().run(ops::Linear{out, s.floats({n, w.cols}, x), s.weight(w)});
  return s.read(out);
}

/// On tiles of row-major weights.
std::vector<float> run_tiles(Device& device, const EncodedWeight& w, const std::vector<float>& x,
                             int64_t n) {
  return run_linear(device, tiled(w), x, n);
}

void check_definition(const EncodedWeight& w, const std::vector<float>& x, int64_t n,
                      const std::string& what) {
  const std::vector<float> expected = define_linear(w, x, n);
  for (const NamedDevice& device : int8_devices()) {
    expect_same_bits(formatted("{}[{}, {} {}, {}x{}x{}]", what, device.name, w.format.to_string(),
                               dtype_name(w.format.dtype), n, w.rows, w.cols),
                     expected, run_tiles(*device.device, w, x, n));
    expect_same_bits(formatted("{} in rows[{}, {} {}, {}x{}x{}]", what, device.name,
                               w.format.to_string(), dtype_name(w.format.dtype), n, w.rows, w.cols),
                     expected, run_linear(*device.device, w, x, n));
  }
}

TEST(Int8Linear, HasTheBitsOfItsDefinitionOnEveryInstructionSet) {
  Random random(60);
  for (const QuantFormat& format : int8_formats()) {
    for (const Problem& p : {Problem{1, 16, 128}, Problem{3, 48, 1152}, Problem{11, 32, 640}}) {
      const EncodedWeight w = random_weight(random, format, p.rows, p.cols);
      check_definition(w, random.floats(p.n * p.cols, -2.0f, 2.0f), p.n, "linear");
    }
  }
}

TEST(Int8Linear, HasTheBitsOfItsDefinitionInAwkwardShapes) {
  Random random(61);
  for (const int bits : {4, 8}) {
    for (const int group : {32, 64, 128}) {
      const QuantFormat format = QuantFormat::affine(bits, group, DType::kBf16);
      for (const int64_t groups : {1, 3, 8, 17}) {
        for (const Problem& p : {Problem{1, 16, 0}, Problem{2, 32, 0}, Problem{7, 144, 0}}) {
          const EncodedWeight w = random_weight(random, format, p.rows, groups * group);
          check_definition(w, random.floats(p.n * w.cols), p.n, "linear");
        }
      }
      const EncodedWeight w = random_weight(random, format, 48, 3 * group);
      for (int64_t n = 1; n <= 26; ++n) {
        check_definition(w, random.floats(n * w.cols), n, "linear");
      }
      for (const int64_t n : {64, 127, 130, 515, 1030}) {
        check_definition(w, random.floats(n * w.cols), n, "linear");
      }
    }
  }
}

TEST(Int8Linear, KeepsExtremeCodesActivationsAndSigns) {
  Random random(62);
  for (const int bits : {4, 8}) {
    EncodedWeight w = random_weight(random, QuantFormat::affine(bits, 64, DType::kBf16), 48, 256);
    for (size_t i = 1; i < w.scales.size(); i += 4) w.scales[i] ^= std::byte{0x80};
    check_definition(w, random.floats(5 * 256), 5, "negative scales");
    std::fill(w.data.begin(), w.data.end(), std::byte{0xff});
    check_definition(w, std::vector<float>(5 * 256, 3.0f), 5, "largest codes");
    check_definition(w, std::vector<float>(5 * 256, -3.0f), 5, "smallest products");
    check_definition(w, std::vector<float>(5 * 256, 0.0f), 5, "zeros");
    check_definition(w, std::vector<float>(5 * 256, 1e-38f), 5, "tiny activations");
    check_definition(w, std::vector<float>(1 * 256, 3.0f), 1, "largest codes of one token");
    std::vector<float> spike = random.floats(5 * 256);
    spike[70] = 1e30f;
    spike[700] = -1e30f;
    check_definition(w, spike, 5, "one huge activation");
  }
}

TEST(Int8Linear, RoundsNoMoreThanItsStepAllows) {
  Random random(63);
  for (const QuantFormat& format : int8_formats()) {
    const EncodedWeight w = random_weight(random, format, 32, 640);
    const std::vector<float> x = random.floats(9 * 640, -2.0f, 2.0f);
    const std::vector<float> expected = run_linear(reference(), w, x, 9);
    const std::vector<float> got = run_tiles(*int8_devices().front().device, w, x, 9);
    const auto size = static_cast<size_t>(format.group_size);
    for (size_t i = 0; i < got.size(); ++i) {
      const auto tokens = std::span(x).subspan(i / 32 * 640, 640);
      const auto row = std::span(w.decoded).subspan(i % 32 * 640, 640);
      // Errors of one activation are even over a step of scale: its square / 12 in the mean.
      double variance = 0.0;
      for (size_t k = 0; k < 640; k += size) {
        const double step = largest(tokens.subspan(k, size)) / 127.0;
        variance += step * step / 12.0 * std::pow(norm(row.subspan(k, size)), 2);
      }
      const double tolerance = 5.0 * std::sqrt(variance) + dot_tolerance(row, tokens);
      EXPECT_NEAR(got[i], expected[i], tolerance)
          << format.to_string() << ", token " << i / 32 << " row " << i % 32;
    }
  }
}

TEST(Int8Linear, NaNAndInfinityStayInTheirToken) {
  Random random(64);
  const EncodedWeight w = random_weight(random, QuantFormat::affine(4, 64, DType::kBf16), 32, 256);
  const std::vector<float> clean = random.floats(10 * 256);
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> x = clean;
    x[3 * 256 + 77] = bad;
    for (const NamedDevice& device : int8_devices()) {
      std::vector<float> got = run_tiles(*device.device, w, x, 10);
      std::vector<float> expected = run_tiles(*device.device, w, clean, 10);
      for (size_t i = 3 * 32; i < 4 * 32; ++i) {
        EXPECT_FALSE(std::isfinite(got[i])) << device.name << ", row " << i - 3 * 32;
        got[i] = expected[i] = 0.0f;
      }
      expect_same_bits(device.name, expected, got);
    }
  }
}

/// The same kernels in f32.
std::unique_ptr<Device> f32_like(const NamedDevice& device) {
  auto made = make_cpu_device({.threads = 2, .isa = device.family, .precision = Precision::kF32});
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

TEST(Int8Linear, OtherFormatsStayInF32) {
  Random random(65);
  for (const QuantFormat& format :
       {QuantFormat::affine(4, 64, DType::kBf16), QuantFormat::affine(3, 64, DType::kBf16),
        QuantFormat::affine(6, 32, DType::kF16), QuantFormat::plain(DType::kBf16)}) {
    const EncodedWeight w = random_weight(random, format, 40, 128);
    const std::vector<float> x = random.floats(6 * 128);
    for (const NamedDevice& device : int8_devices()) {
      expect_same_bits(device.name, run_linear(*f32_like(device), w, x, 6),
                       run_linear(*device.device, w, x, 6));
    }
  }
}

TEST(Int8Linear, WeightsThatWantExactActivationsGetThem) {
  Random random(75);
  for (const int bits : {4, 8}) {
    const EncodedWeight w =
        tiled(random_weight(random, QuantFormat::affine(bits, 64, DType::kBf16), 48, 256));
    for (const int64_t n : {1, 7}) {
      const std::vector<float> x = random.floats(n * 256);
      for (const NamedDevice& device : int8_devices()) {
        Session s(*device.device);
        Weight exact = s.weight(w);
        exact.exact_activations = true;
        const Tensor out = s.zeros({n, w.rows});
        s.encoder().run(ops::Linear{out, s.floats({n, w.cols}, x), exact});
        expect_same_bits(device.name, run_linear(*f32_like(device), w, x, n), s.read(out));
      }
    }
  }
}

/// slots [n, top_k, hidden] out of whole products of every expert.
std::vector<float> define_slots(Session& s, const MoeProblem& p) {
  std::vector<float> slots;
  std::vector<std::vector<float>> of_expert;
  const Tensor x = s.floats({p.n, p.hidden}, p.x);
  for (size_t e = 0; e < p.gate.size(); ++e) {
    const Tensor gate = s.zeros({p.n, p.intermediate});
    const Tensor up = s.zeros({p.n, p.intermediate});
    const Tensor down = s.zeros({p.n, p.hidden});
    s.encoder().run(ops::Linear{gate, x, s.weight(p.gate[e])});
    s.encoder().run(ops::Linear{up, x, s.weight(p.up[e])});
    s.encoder().run(ops::Glu{up, gate, up, p.glu});
    s.encoder().run(ops::Linear{down, up, s.weight(p.down[e])});
    of_expert.push_back(s.read(down));
  }
  for (size_t slot = 0; slot < p.ids.size(); ++slot) {
    const std::vector<float>& all = of_expert[static_cast<size_t>(p.ids[slot])];
    const auto token = static_cast<int64_t>(slot) / p.top_k;
    slots.insert(slots.end(), all.begin() + token * p.hidden, all.begin() + (token + 1) * p.hidden);
  }
  return slots;
}

TEST(Int8ExpertFfn, IsThreeProductsAndAGatedUnit) {
  Random random(66);
  for (const QuantFormat& format : tiled_formats()) {
    for (const int64_t n : {1, 3, 40}) {
      MoeProblem p = MoeProblem::make(
          random, format, {.hidden = 256, .intermediate = 128, .experts = 5, .top_k = 3, .n = n});
      // Activations of one call may be wanted in groups of several sizes.
      p.down[1] = random_weight(random, tiles(8, 32, DType::kBf16), 256, 128);
      // Nor need they all be in tiles.
      p.up[2] = random_weight(random, QuantFormat::affine(3, 32, DType::kBf16), 128, 256);
      p.gate[3] = random_weight(random, QuantFormat::affine(4, 64, DType::kBf16), 128, 256);
      for (const NamedDevice& device : int8_devices()) {
        Session s(*device.device);
        const std::vector<float> expected = define_slots(s, p);
        const std::vector<float> got = p.run(s, p.all_at_once());
        expect_same_bits(formatted("{}, {}, {} tokens", device.name, format.to_string(), n),
                         expected, std::span(got).first(expected.size()));
      }
    }
  }
}

TEST(Int8ExpertFfn, BiasesCountInFull) {
  Random random(67);
  MoeProblem p =
      MoeProblem::make(random, tiles(4, 64, DType::kBf16),
                       {.hidden = 128, .intermediate = 64, .experts = 3, .top_k = 2, .n = 6});
  p.add_biases(random, DType::kF16);
  p.glu = {.alpha = 1.702f, .limit = 7.0f, .up_offset = 1.0f};
  Session exact(reference());
  const std::vector<float> expected = p.run(exact, p.all_at_once());
  for (const NamedDevice& device : int8_devices()) {
    Session s(*device.device);
    const std::vector<float> got = p.run(s, p.all_at_once());
    std::vector<float> error(got.size());
    for (size_t i = 0; i < got.size(); ++i) error[i] = got[i] - expected[i];
    EXPECT_LT(norm(error), 0.02 * norm(expected)) << device.name;
  }
}

TEST(Int8Invariance, LinearInAnyCutOfItsTokens) {
  Random random(68);
  for (const QuantFormat& format : int8_formats()) {
    const EncodedWeight w = random_weight(random, format, 48, 384);
    const std::vector<float> x = random.floats(70 * 384);
    for (const NamedDevice& device : int8_devices()) {
      const std::vector<float> expected = run_tiles(*device.device, w, x, 70);
      for (const Chunks& chunks : {one_by_one(70), Chunks{64, 6}, Chunks{1, 2, 3, 4, 5, 6, 49}}) {
        std::vector<float> got;
        int64_t at = 0;
        for (const int64_t count : chunks) {
          const std::vector<float> part(x.begin() + at * 384, x.begin() + (at + count) * 384);
          const std::vector<float> rows = run_tiles(*device.device, w, part, count);
          got.insert(got.end(), rows.begin(), rows.end());
          at += count;
        }
        expect_same_bits(
            formatted("{}, {}, {} calls", device.name, format.to_string(), chunks.size()), expected,
            got);
      }
    }
  }
}

TEST(Int8Invariance, ExpertFfnInAnyPartitionOfReadyExpertsAndAnyToken) {
  Random random(69);
  const QuantFormat format = tiles(4, 64, DType::kBf16);
  MoeProblem p = MoeProblem::make(
      random, format, {.hidden = 128, .intermediate = 128, .experts = 6, .top_k = 3, .n = 19});
  p.up[2] = random_weight(random, tiles(4, 32, DType::kBf16), 128, 128);
  p.gate[4] = random_weight(random, QuantFormat::affine(6, 64, DType::kBf16), 128, 128);
  p.down[3] = random_weight(random, tiles(8, 128, DType::kF16), 128, 128);
  const std::vector<std::vector<std::vector<int32_t>>> partitions = {
      {{0}, {1}, {2}, {3}, {4}, {5}}, {{5, 4, 3, 2, 1, 0}}, {{3, 1}, {}, {0, 5, 4}, {2}}};
  const auto slots = static_cast<size_t>(p.top_k * p.hidden);
  for (const NamedDevice& device : int8_devices()) {
    Session whole(*device.device);
    const std::vector<float> expected = p.run(whole, p.all_at_once());
    for (const auto& waves : partitions) {
      Session s(*device.device);
      expect_same_bits(formatted("{}, {} waves", device.name, waves.size()), expected,
                       p.run(s, waves));
    }
    for (int64_t t = 0; t < p.n; ++t) {
      Session s(*device.device);
      const std::vector<float> got = p.run_tokens(s, t, 1, p.all_at_once());
      expect_same_bits(formatted("{}, token {}", device.name, t),
                       std::span(expected).subspan(static_cast<size_t>(t) * slots, slots),
                       std::span(got).first(slots));
    }
  }
}

TEST(Int8Device, NamesItsKernels) {
  auto device = make_cpu_device({.threads = 2, .isa = "generic", .precision = Precision::kInt8});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->description(), "cpu (generic int8, 2 threads)");
}

}  // namespace
}  // namespace moeflux::conformance
