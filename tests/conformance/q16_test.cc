// The CPU's precision q16: the bits of GPUs' matrix units, on every instruction set, in either
// order of weights, for any number of tokens and awkward activations.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa_choice.h"
#include "base/format.h"
#include "quant/format_traits.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

std::vector<NamedDevice> open_q16_devices() {
  std::vector<NamedDevice> list;
  for (const cpu::KernelSet* kernels : cpu::supported_kernels()) {
    const std::string isa = kernels->name;
    auto device = make_cpu_device({.threads = 2, .isa = isa, .precision = Precision::kQ16});
    EXPECT_TRUE(device.ok());
    list.push_back({isa + " q16", isa, std::move(device).value()});
  }
  return list;
}

const std::vector<NamedDevice>& q16_devices() {
  static const std::vector<NamedDevice> all = open_q16_devices();
  return all;
}

/// GPUs, and the first emulator with matrix units, whose work takes long.
std::vector<const NamedDevice*> units_to_compare_with() {
  std::vector<const NamedDevice*> chosen;
  for (const NamedDevice* device : devices_with_units()) {
    if (!device->is_slow || chosen.empty()) chosen.push_back(device);
  }
  return chosen;
}

/// Every format that matrix units multiply.
std::vector<QuantFormat> formats_of_units() {
  std::vector<QuantFormat> formats;
  for (const int bits : {4, 8}) {
    for (const int group : {64, 128}) {
      for (const DType dtype : {DType::kBf16, DType::kF16}) {
        formats.push_back(QuantFormat::affine(bits, group, dtype));
      }
    }
    formats.push_back(QuantFormat::affine(bits, 128, DType::kF32));
  }
  for (const char* name :
       {"q4_0",  "q4_1",     "q5_0",  "q5_1",    "q8_0",      "q2_k",       "q3_k",
        "q4_k",  "q5_k",     "q6_k",  "iq4_nl",  "iq4_xs",    "mxfp4_gguf", "q1_0",
        "q2_0",  "q2_0_128", "tq2_0", "iq2_xxs", "iq2_xs",    "iq2_s",      "iq3_xxs",
        "iq3_s", "iq1_s",    "iq1_m", "tq1_0",   "nvfp4_gguf"}) {
    formats.push_back(QuantFormat::of(*find_format(name)));
  }
  formats.push_back(formats.back().with_outer_scale());  // of NVFP4
  return formats;
}

/// NaN has any bits.
std::vector<float> with_one_nan(std::vector<float> values) {
  for (float& value : values) {
    if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

/// Tokens of the numbers that integers have most trouble with.
std::vector<float> awkward_rows(Random& random, int64_t n, int64_t cols) {
  std::vector<float> x = random.floats(n * cols, -2.0f, 2.0f);
  for (int64_t t = 0; t < n; ++t) {
    float* row = x.data() + t * cols;
    const int64_t at = random.below(cols);
    switch (t % 8) {
      case 0:
        for (int64_t c = 0; c < cols; c += 64) row[c + random.below(64)] = 1e4f;
        break;
      case 1:
        std::fill_n(row, cols, t % 16 == 1 ? 0.0f : -0.0f);
        break;
      case 2:
        for (int64_t c = 0; c < cols; ++c) row[c] *= 1e-30f;
        break;
      case 3:
        row[at] = 3e38f;
        break;
      case 4:
        for (int64_t c = 0; c < 64; ++c) row[c] = 0.0f;
        break;
      case 5:
        // Numbers that round to a tie, and the most that there is of a byte of 256s.
        for (int64_t c = 0; c < cols; ++c) row[c] = c % 2 == 0 ? 0x1.fffffep+0f : 0x1.02p-16f;
        break;
      case 6:
        if (t > 8) row[at] = t % 16 < 8 ? std::numeric_limits<float>::infinity() : -NAN;
        break;
      default:
        break;
    }
  }
  return x;
}

std::vector<float> run_linear(Device& device, const EncodedWeight& w, const std::vector<float>& x,
                              int64_t n) {
  Session s(device, size_t{1} << 22);
  const Tensor out = s.zeros({n, w.rows});
  s.encoder().run(ops::Linear{out, s.floats({n, w.cols}, x), s.weight(w)});
  return with_one_nan(s.read(out));
}

/// Each CPU device computes, once, what GPUs compute.
using OnDevice = std::function<std::vector<float>(Device& device)>;
void expect_bits_of_units(const std::vector<const NamedDevice*>& all_units, const std::string& what,
                          const OnDevice& run, const std::vector<OnDevice>& q16_runs) {
  std::vector<std::vector<float>> expected;
  for (const NamedDevice* units : all_units) expected.push_back(run(*units->device));
  for (const NamedDevice& device : q16_devices()) {
    for (size_t i = 0; i < q16_runs.size(); ++i) {
      const std::vector<float> got = q16_runs[i](*device.device);
      for (size_t u = 0; u < all_units.size(); ++u) {
        expect_same_bits(formatted("{} and {}, {}{}", all_units[u]->name, device.name, what,
                                   i == 0 ? "" : " in tiles"),
                         expected[u], got);
      }
    }
  }
}

void check_units(Random& random, const QuantFormat& format, const LinearProblem& p,
                 const std::vector<const NamedDevice*>& all_units = units_to_compare_with()) {
  const EncodedWeight w = random_weight(random, format, p.rows, p.cols);
  const std::vector<float> x = awkward_rows(random, p.n, p.cols);
  const auto run = [&](Device& device) { return run_linear(device, w, x, p.n); };
  std::vector<OnDevice> q16_runs = {run};
  if (format.is_affine()) {
    q16_runs.push_back(
        [&, of_tiles = tiled(w)](Device& device) { return run_linear(device, of_tiles, x, p.n); });
  }
  expect_bits_of_units(all_units,
                       formatted("{} {}, {}x{}x{}", format.to_string(), dtype_name(format.dtype),
                                 p.n, p.rows, p.cols),
                       run, q16_runs);
}

TEST(Q16, IsComparedWithMatrixUnits) {
  Random random(159);
  ASSERT_FALSE(units_to_compare_with().empty());
  for (const NamedDevice* units : units_to_compare_with()) {
    for (const QuantFormat& format : formats_of_units()) {
      const EncodedWeight w = random_weight(random, format, 16, 256);
      const std::vector<float> x = random.floats(w.cols);
      const Outcome got = run_on(*units, [&](Session& s) {
        const Tensor out = s.zeros({1, w.rows});
        s.encoder().run(ops::Linear{out, s.floats({1, w.cols}, x), s.weight(w)});
        return s.read(out);
      });
      // As this is allowed to whoever launched kernels for matrix units.
      EXPECT_TRUE(units->launches == nullptr || got.allowance > 1.0) << format.to_string();
    }
  }
}

TEST(Q16, ProductsHaveTheBitsOfMatrixUnits) {
  Random random(160);
  for (const QuantFormat& format : formats_of_units()) {
    for (const LinearProblem& p :
         {LinearProblem{1, 48, 1280}, LinearProblem{3, 16, 768}, LinearProblem{21, 32, 2304}}) {
      check_units(random, format, p);
    }
  }
}

TEST(Q16, ProductsOfAnyWidthHaveTheBitsOfMatrixUnits) {
  Random random(161);
  for (const int64_t cols : {64, 128, 448, 512, 576, 1088, 8192}) {
    for (const int bits : {4, 8}) {
      const int group = cols % 128 == 0 && bits == 8 ? 128 : 64;
      check_units(random, QuantFormat::affine(bits, group, DType::kBf16), {9, 16, cols});
      check_units(random, QuantFormat::affine(bits, 64, DType::kF16), {1, 32, cols});
    }
  }
}

// Rows of activations that are arranged anew on the way, in the middle of a row of weights; on
// GPUs rows that leave few SIMD groups room beside them.
TEST(Q16, LongProductsOfOneTokenHaveTheBitsOfMatrixUnits) {
  Random random(166);
  const std::vector<const NamedDevice*> all_units = devices_with_units();
  for (const QuantFormat& format : formats_of_units()) {
    check_units(random, format, {1, 32, 8192 + 1280}, all_units);
  }
  for (const int bits : {4, 8}) {
    const QuantFormat format = QuantFormat::affine(bits, 64, DType::kF16);
    check_units(random, format, {1, 16, 2 * 8192 + 64}, all_units);
    check_units(random, format, {1, 16, 4 * 8192 + 64}, all_units);
  }
}

TEST(Q16, AwkwardTokensHaveTheBitsOfMatrixUnitsAlone) {
  if (units_to_compare_with().empty()) GTEST_SKIP() << "hardware: no device has matrix units";
  Random random(167);
  constexpr int64_t kRowsOfX = 15;
  for (const QuantFormat& format : formats_of_units()) {
    const EncodedWeight w = random_weight(random, format, 16, 768);
    const std::vector<float> x = awkward_rows(random, kRowsOfX, w.cols);
    const std::vector<float> expected =
        run_linear(*units_to_compare_with()[0]->device, w, x, kRowsOfX);
    for (const NamedDevice& device : q16_devices()) {
      for (int64_t t = 0; t < kRowsOfX; ++t) {
        const auto row = [&](const std::vector<float>& all, int64_t size) {
          return std::vector<float>(all.begin() + t * size, all.begin() + (t + 1) * size);
        };
        expect_same_bits(formatted("{}, {} {}, token {}", device.name, format.to_string(),
                                   dtype_name(format.dtype), t),
                         row(expected, w.rows), run_linear(*device.device, w, row(x, w.cols), 1));
      }
    }
  }
}

TEST(Q16, ProductsOfAnyNumberOfTokensHaveTheBitsOfMatrixUnits) {
  Random random(162);
  for (const int64_t n : {2, 4, 5, 6, 7, 8, 11, 12, 13, 24, 25, 37, 48, 64, 70}) {
    check_units(random, QuantFormat::affine(4, 64, DType::kBf16), {n, 48, 704});
    check_units(random, QuantFormat::of(*find_format(n % 2 == 0 ? "q4_k" : "q6_k")), {n, 16, 768});
  }
}

/// The slots of experts, then nothing: only one device sums them up.
std::vector<float> run_slots(Device& device, const MoeProblem& p) {
  Session s(device, size_t{4} << 20);
  std::vector<float> slots = p.run(s, p.all_at_once());
  slots.resize(static_cast<size_t>(p.n * p.top_k * p.hidden));
  return with_one_nan(std::move(slots));
}

MoeProblem tiled_experts(MoeProblem p) {
  for (auto* matrices : {&p.gate, &p.up, &p.down}) {
    for (EncodedWeight& w : *matrices) w = tiled(w);
  }
  return p;
}

void check_experts(Random& random, const QuantFormat& format, const MoeSizes& sizes,
                   const GluOptions& glu) {
  MoeProblem p = MoeProblem::make(random, format, sizes);
  p.glu = glu;
  p.x = awkward_rows(random, p.n, p.hidden);
  if (sizes.n % 2 == 1) p.add_biases(random, DType::kBf16);
  const auto run = [&](Device& device) { return run_slots(device, p); };
  std::vector<OnDevice> q16_runs = {run};
  if (format.is_affine()) {
    q16_runs.push_back(
        [of_tiles = tiled_experts(p)](Device& device) { return run_slots(device, of_tiles); });
  }
  expect_bits_of_units(
      units_to_compare_with(),
      formatted("{} {}, {} tokens", format.to_string(), dtype_name(format.dtype), p.n), run,
      q16_runs);
}

TEST(Q16, ExpertsHaveTheBitsOfMatrixUnits) {
  Random random(163);
  for (const QuantFormat& format : formats_of_units()) {
    for (const int64_t n : {1, 40}) {
      check_experts(random, format,
                    {.hidden = 768, .intermediate = 256, .experts = 4, .top_k = 2, .n = n}, {});
    }
  }
}

TEST(Q16, GatedUnitsHaveTheBitsOfMatrixUnits) {
  Random random(164);
  const MoeSizes sizes = {.hidden = 640, .intermediate = 64, .experts = 3, .top_k = 2, .n = 7};
  const QuantFormat format = QuantFormat::affine(4, 64, DType::kBf16);
  check_experts(random, format, sizes, {.activation = Activation::kGeluTanh});
  check_experts(random, format, sizes, {.alpha = 1.702f, .limit = 7.0f, .up_offset = 1.0f});
  check_experts(random, format, sizes, {.limit = 0.5f});
}

// Everything else is as with f32 activations.
TEST(Q16, OtherFormatsHaveTheBitsOfF32) {
  Random random(165);
  auto f32 = make_cpu_device({.threads = 2, .isa = {}, .precision = Precision::kF32});
  auto q16 = make_cpu_device({.threads = 2, .isa = {}, .precision = Precision::kQ16});
  ASSERT_TRUE(f32.ok() && q16.ok());
  for (const QuantFormat& format :
       {QuantFormat::affine(4, 32, DType::kBf16), QuantFormat::affine(8, 64, DType::kF32),
        QuantFormat::affine(6, 64, DType::kF16), QuantFormat::plain(DType::kBf16)}) {
    const EncodedWeight w = random_weight(random, format, 32, 640);
    const std::vector<float> x = random.floats(3 * w.cols);
    expect_same_bits(format.to_string(), run_linear(**f32, w, x, 3), run_linear(**q16, w, x, 3));
  }
}

}  // namespace
}  // namespace moeflux::conformance
