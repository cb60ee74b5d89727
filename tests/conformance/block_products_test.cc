// Products of the CPU's int8 precision with rows of GGML's blocks as they are stored: near the
// stored numbers times the rounded activations, and the same bits on every instruction set,
// whatever the threads, the chunks and the company.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa_choice.h"
#include "base/format.h"
#include "tests/support/device_session.h"
#include "tests/support/random_blocks.h"
#include "tests/support/stored_matrix.h"

namespace moeflux::testing {
namespace {

struct NamedCpu {
  std::string name;
  std::unique_ptr<Device> device;
};

const std::vector<NamedCpu>& int8_cpus() {
  static const std::vector<NamedCpu> all = [] {
    std::vector<NamedCpu> list;
    for (const cpu::KernelSet* kernels : cpu::supported_kernels()) {
      for (const int threads : {1, 3}) {
        auto device = make_cpu_device(
            {.threads = threads, .isa = kernels->name, .precision = Precision::kInt8});
        EXPECT_TRUE(device.ok());
        list.push_back({formatted("{}/{}", kernels->name, threads), std::move(device).value()});
      }
    }
    return list;
  }();
  return all;
}

/// A row of activations after its rounding in groups.
std::vector<double> rounded(std::span<const float> x, size_t group) {
  std::vector<double> result;
  for (size_t begin = 0; begin < x.size(); begin += group) {
    float largest = 0.0f;
    for (size_t i = 0; i < group; ++i) largest = std::max(largest, std::fabs(x[begin + i]));
    for (size_t i = 0; i < group; ++i) {
      const float code = std::nearbyint(x[begin + i] * (127.0f / largest));
      result.push_back(static_cast<double>(code) * static_cast<double>(largest / 127.0f));
    }
  }
  return result;
}

/// Columns that are rounded together: those of one scale, 64 of long ones.
size_t group_of(const GgmlType& type) {
  for (const char* name : {"Q2_K", "Q3_K", "Q6_K", "IQ2_XS", "IQ2_S", "IQ1_M", "NVFP4"}) {
    if (type.name == name) return 16;
  }
  for (const char* name : {"Q1_0", "Q2_0", "Q2_0_128", "TQ1_0", "TQ2_0"}) {
    if (type.name == name) return 64;
  }
  return 32;
}

struct Product {
  const BlockMatrix& m;
  int64_t tokens;
  std::vector<float> x;

  /// In calls of so many tokens.
  std::vector<float> run(Device& device, const std::vector<int64_t>& calls) const {
    std::vector<std::unique_ptr<Buffer>> buffers;
    DeviceSession s(device);
    const Weight w = put_on(m, device, buffers);
    const Tensor in = s.floats({tokens, w.cols}, x);
    const Tensor out = s.zeros({tokens, w.rows});
    int64_t at = 0;
    for (const int64_t count : calls) {
      s.encoder().run(ops::Linear{out.slice(0, at, count), in.slice(0, at, count), w});
      at += count;
    }
    EXPECT_EQ(at, tokens);
    return s.read(out);
  }
};

void expect_near_rounded(const GgmlType& type, const Product& p,
                         const std::vector<float>& results) {
  auto host = make_cpu_device({.threads = 1});
  ASSERT_TRUE(host.ok());
  std::vector<std::unique_ptr<Buffer>> buffers;
  const Weight w = put_on(p.m, **host, buffers);
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int64_t t = 0; t < p.tokens; ++t) {
    const std::span<const float> x =
        std::span(p.x).subspan(static_cast<size_t>(t * w.cols), static_cast<size_t>(w.cols));
    const std::vector<double> values = rounded(x, group_of(type));
    for (int64_t r = 0; r < w.rows; ++r) {
      decode_row(w, r, row);
      double expected = 0;
      double size = 0;
      for (size_t c = 0; c < row.size(); ++c) {
        expected += static_cast<double>(row[c]) * values[c];
        size += std::fabs(static_cast<double>(row[c]) * values[c]);
      }
      ASSERT_NEAR(results[static_cast<size_t>(t * w.rows + r)], expected, 1e-5 * size)
          << type.name << ", token " << t << ", row " << r;
    }
  }
}

TEST(BlockProducts, AreTheSameBitsEverywhereAndNearTheRoundedActivations) {
  int types = 0;
  for (const GgmlType& type : block_types()) {
    // The others are decoded, and their activations are not rounded.
    if (!int8_cpus().back().device->multiplies_rows_as_tiles(*type.format)) continue;
    ++types;
    // Where blocks allow it, not whole stretches of what is filled.
    const int64_t cols = type.block_elements == 256 ? 768 : type.block_elements == 128 ? 640 : 448;
    const BlockMatrix m(type, 48, cols, 11, type.name == "NVFP4", 3);
    const Product p{m, 13, random_floats(13 * cols, 12)};
    const std::vector<float> expected = p.run(*int8_cpus().back().device, {13});
    expect_near_rounded(type, p, expected);
    for (const NamedCpu& cpu : int8_cpus()) {
      for (const std::vector<int64_t>& calls :
           {std::vector<int64_t>{13}, {1, 2, 3, 4, 1, 1, 1}, {5, 8}}) {
        EXPECT_EQ(p.run(*cpu.device, calls), expected)
            << type.name << " on " << cpu.name << ", " << calls.size() << " calls";
      }
    }
  }
  EXPECT_EQ(types, 26);
}

// Scales of small weights are halves below the normal ones, in IQ4_XS of most models.
TEST(BlockProducts, ScalesBelowTheNormalHalvesAreTheSameBitsEverywhere) {
  for (const GgmlType& type : block_types()) {
    if (half_places(type.name).empty()) continue;
    if (!int8_cpus().back().device->multiplies_rows_as_tiles(*type.format)) continue;
    const int64_t cols = 768;
    BlockMatrix m(type, 32, cols, 21);
    const std::span<std::byte> codes = m.layout.bytes_in(m.bytes.data()).codes;
    for (size_t at = 0; at < codes.size(); at += static_cast<size_t>(type.block_bytes)) {
      for (const size_t half : half_places(type.name)) codes[at + half + 1] &= std::byte{0x83};
    }
    const Product p{m, 7, random_floats(7 * cols, 22)};
    const std::vector<float> expected = p.run(*int8_cpus().back().device, {7});
    expect_near_rounded(type, p, expected);
    for (const NamedCpu& cpu : int8_cpus()) {
      for (const std::vector<int64_t>& calls : {std::vector<int64_t>{7}, {1, 2, 4}}) {
        EXPECT_EQ(p.run(*cpu.device, calls), expected) << type.name << " on " << cpu.name;
      }
    }
  }
}

// Sums of 16 bits barely hold these, and some groups of activations have no scale to divide by.
TEST(BlockProducts, GreatestCodesAndActivationsOfNothingAreTheSameBitsEverywhere) {
  for (const GgmlType& type : block_types()) {
    if (!int8_cpus().back().device->multiplies_rows_as_tiles(*type.format)) continue;
    const int64_t cols = 768;
    BlockMatrix m(type, 32, cols, 31, type.name == "NVFP4");
    const std::span<std::byte> codes = m.layout.bytes_in(m.bytes.data()).codes;
    const auto step = static_cast<size_t>(type.block_bytes);
    const std::vector<size_t> halves = half_places(type.name);
    for (size_t at = 0; at < codes.size(); at += step) {
      const std::byte fill{static_cast<uint8_t>(at / step % 3 == 0 ? 0xff : at / step % 3 * 0x80)};
      for (size_t i = 4; i < step; ++i) {  // all but the scales, most of which come first
        const bool is_half = std::any_of(halves.begin(), halves.end(),
                                         [&](size_t half) { return i == half || i == half + 1; });
        const bool is_scale = is_half || (type.name == "IQ1_M" && i >= 48);
        if (!is_scale) codes[at + i] = fill;
      }
    }
    Product p{m, 9, random_floats(9 * cols, 32)};
    for (size_t i = 0; i < p.x.size(); ++i) {
      const auto token = static_cast<int64_t>(i) / cols;
      const bool in_even_group = i / 64 % 2 == 0;
      if (token < 2) p.x[i] = token == 0 ? 3.0f : -3.0f;
      if (token == 2 && in_even_group) p.x[i] = 0.0f;
      if (token == 3 && in_even_group) p.x[i] *= 1e-36f;
      if (token == 4) p.x[i] = 0.0f;
      if (token == 5) p.x[i] *= 1e-34f;
    }
    const std::vector<float> expected = p.run(*int8_cpus().back().device, {9});
    for (const NamedCpu& cpu : int8_cpus()) {
      for (const std::vector<int64_t>& calls : {std::vector<int64_t>{9}, {1, 3, 5}}) {
        EXPECT_EQ(p.run(*cpu.device, calls), expected) << type.name << " on " << cpu.name;
      }
    }
  }
}

// Panels are sixteen rows: other matrices are decoded, and their activations are not rounded.
TEST(BlockProducts, RowsThatAreNoWholePanelsKeepTheirActivations) {
  const GgmlType& type = *find_ggml_type("Q4_K");
  const BlockMatrix m(type, 24, 512, 5);
  const Product p{m, 3, random_floats(3 * 512, 6)};
  auto exact = make_cpu_device({.threads = 2, .precision = Precision::kF32});
  ASSERT_TRUE(exact.ok());
  for (const NamedCpu& cpu : int8_cpus()) {
    if (cpu.name.starts_with("generic")) continue;  // rounds otherwise than the default kernels
    const std::vector<float> together = p.run(*cpu.device, {3});
    EXPECT_EQ(p.run(*cpu.device, {1, 1, 1}), together) << cpu.name;
    const std::vector<float> expected = p.run(**exact, {3});
    for (size_t i = 0; i < together.size(); ++i) {
      EXPECT_NEAR(together[i], expected[i], 1e-4) << cpu.name;
    }
  }
}

/// Experts whose matrices have different types, as mixes have them.
struct Experts {
  static constexpr int64_t kHidden = 512;
  static constexpr int64_t kWidth = 256;
  static constexpr int kCount = 4;

  Experts() {
    const char* const gates[] = {"Q4_K", "IQ3_XXS", "Q4_0", "Q6_K"};
    const char* const downs[] = {"Q6_K", "Q5_0", "IQ4_XS", "Q8_0"};
    for (uint32_t e = 0; e < kCount; ++e) {
      gate.emplace_back(*find_ggml_type(gates[e]), kWidth, kHidden, 3 * e);
      up.emplace_back(*find_ggml_type(e == 2 ? "Q2_K" : gates[e]), kWidth, kHidden, 3 * e + 1);
      down.emplace_back(*find_ggml_type(downs[e]), kHidden, kWidth, 3 * e + 2);
    }
  }

  /// [tokens * 2, kHidden]: each token's two experts.
  std::vector<float> run(Device& device, std::span<const float> x, int64_t tokens) const {
    std::vector<std::unique_ptr<Buffer>> buffers;
    DeviceSession s(device);
    std::vector<ExpertWeights> ready(kCount);
    for (size_t e = 0; e < kCount; ++e) {
      ready[e].expert = ExpertId{static_cast<int32_t>(e)};
      ready[e].gate = put_on(gate[e], device, buffers);
      ready[e].up = put_on(up[e], device, buffers);
      ready[e].down = put_on(down[e], device, buffers);
    }
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < tokens; ++t) {
      ids.push_back(t % kCount);
      ids.push_back((t + 1 + t / 7 % 3) % kCount);
    }
    const Routes routes{s.ints({tokens, 2}, ids), s.zeros({tokens, 2})};
    const Tensor out = s.zeros({tokens * 2, kHidden});
    s.encoder().run(ops::ExpertFfn{
        out, s.zeros({tokens * 2, kWidth}), s.floats({tokens, kHidden}, x), routes, ready, {}});
    return s.read(out);
  }

  std::vector<BlockMatrix> gate;
  std::vector<BlockMatrix> up;
  std::vector<BlockMatrix> down;
};

TEST(BlockProducts, ExpertsOfAnyMixAgree) {
  const Experts experts;
  for (const int64_t tokens : {1, 3, 41}) {
    const std::vector<float> x = random_floats(tokens * Experts::kHidden, 9);
    auto exact = make_cpu_device({.threads = 2, .precision = Precision::kF32});
    ASSERT_TRUE(exact.ok());
    const std::vector<float> near = experts.run(**exact, x, tokens);
    std::vector<float> first;
    for (const NamedCpu& cpu : int8_cpus()) {
      const std::vector<float> results = experts.run(*cpu.device, x, tokens);
      double dot = 0;
      double a = 0;
      double b = 0;
      for (size_t i = 0; i < results.size(); ++i) {
        dot += static_cast<double>(results[i]) * static_cast<double>(near[i]);
        a += static_cast<double>(results[i]) * static_cast<double>(results[i]);
        b += static_cast<double>(near[i]) * static_cast<double>(near[i]);
      }
      EXPECT_GT(dot / std::sqrt(a * b), 0.999) << cpu.name << ", " << tokens << " tokens";
      // Threads change nothing. Instruction sets do between products: the gate's exponential.
      const bool same_set = !cpu.name.ends_with("/1");
      if (same_set) {
        EXPECT_EQ(results, first) << cpu.name << ", " << tokens << " tokens";
      }
      first = results;
    }
  }
}

}  // namespace
}  // namespace moeflux::testing
