#include "tests/conformance/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "base/format.h"
#include "quant/formats/affine.h"
#include "quant/formats/tensor_formats.h"
#include "quant/formats/tiled.h"
#include "tests/support/random_blocks.h"

namespace moeflux::conformance {
namespace {

/// Worst error of each op on each device, in units of tolerance; printed when the run ends.
class Matrix : public ::testing::Environment {
 public:
  void add(const std::string& op, const std::string& device, double error) {
    double& worst = worst_[op].try_emplace(device, 0.0).first->second;
    worst = std::max(worst, error);
  }
  void TearDown() override {
    if (worst_.empty()) return;
    std::string text = formatted("\n{:<16}", "worst error");
    for (const NamedDevice& device : devices()) text += formatted("{:>18}", device.name);
    for (const auto& [op, row] : worst_) {
      text += formatted("\n{:<16}", op);
      for (const NamedDevice& device : devices()) {
        const auto cell = row.find(device.name);
        if (cell == row.end()) {
          text += formatted("{:>18}", "-");
        } else {
          text += formatted("{:>13} {:.2f}", cell->second <= 1.0 ? "ok" : "FAIL", cell->second);
        }
      }
    }
    std::printf("%s\n(1.00 is the tolerance)\n", text.c_str());
  }

 private:
  std::map<std::string, std::map<std::string, double>> worst_;
};

Matrix& matrix() {
  static Matrix* const instance = new Matrix;  // gtest owns and deletes it
  return *instance;
}
const ::testing::Environment* const kRegistered = ::testing::AddGlobalTestEnvironment(&matrix());

std::byte* store_float(std::byte* to, float value, DType dtype) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, 4);
    return to + 4;
  }
  const uint16_t bits = dtype == DType::kBf16 ? to_bf16(value).bits : to_f16(value).bits;
  std::memcpy(to, &bits, 2);
  return to + 2;
}

float rounded(float value, DType dtype) {
  if (dtype == DType::kBf16) return to_float(to_bf16(value));
  if (dtype == DType::kF16) return to_float(to_f16(value));
  return value;
}

void encode_affine(EncodedWeight& w, const std::vector<float>& values) {
  const QuantFormat& format = w.format;
  const auto group = static_cast<size_t>(format.group_size);
  std::byte* scale_at = w.scales.data();
  std::byte* bias_at = w.biases.data();
  for (int64_t r = 0; r < w.rows; ++r) {
    std::byte* codes = w.data.data() + r * w.cols * format.bits / 8;
    for (int64_t c = 0; c < w.cols; c += format.group_size) {
      const std::span<const float> weights(values.data() + r * w.cols + c, group);
      affine::GroupParams params = affine::choose_group_params(weights, format.bits);
      params = {rounded(params.scale, format.dtype), rounded(params.bias, format.dtype)};
      scale_at = store_float(scale_at, params.scale, format.dtype);
      bias_at = store_float(bias_at, params.bias, format.dtype);
      for (size_t i = 0; i < group; ++i) {
        affine::set_code(codes, c + static_cast<int64_t>(i), format.bits,
                         affine::encode(weights[i], params, format.bits));
      }
    }
  }
}

/// Compares one device's output; returns the worst error in units of `allowed` tolerances.
double compare(const Comparison& c, const std::string& device, double allowed,
               std::span<const float> expected, std::span<const float> got) {
  double worst = 0.0;
  size_t at = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(static_cast<double>(expected[i]) - got[i]);
    double units = error == 0.0 ? 0.0 : error / (c.tolerance[i] * allowed);
    if (std::isnan(units)) units = HUGE_VAL;
    if (units > worst) {
      worst = units;
      at = i;
    }
  }
  if (worst > 1.0) {
    ADD_FAILURE() << formatted(
        "{}[{}, {}]: row {} element {} expected {} got {}, error {:.1f}x tolerance", c.op, device,
        c.label, static_cast<int64_t>(at) / c.row_width, static_cast<int64_t>(at) % c.row_width,
        expected[at], got[at], worst);
  }
  return worst;
}

}  // namespace

Outcome run_on(const NamedDevice& device, const Run& run) {
  const auto on_units = [&] {
    return device.launches == nullptr ? size_t{0} : device.launches->of_units();
  };
  const size_t before = on_units();
  Session session(*device.device);
  std::vector<float> values = run(session);
  return {std::move(values), on_units() > before ? 16.0 : 1.0};
}

uint64_t Random::next() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return state_ * 0x2545f4914f6cdd1du;
}

float Random::uniform(float low, float high) {
  const float unit = static_cast<float>(next() >> 40) * 0x1p-24f;
  return low + (high - low) * unit;
}

std::vector<float> Random::floats(int64_t count, float low, float high) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(low, high);
  return values;
}

std::vector<int32_t> Random::ids(int64_t count, int64_t limit) {
  std::vector<int32_t> left(static_cast<size_t>(std::max<int64_t>(0, limit)));
  std::iota(left.begin(), left.end(), 0);
  std::vector<int32_t> chosen;
  while (static_cast<int64_t>(chosen.size()) < count) {
    if (left.empty()) {
      chosen.push_back(-1);
      continue;
    }
    const auto at = left.begin() + below(static_cast<int64_t>(left.size()));
    chosen.push_back(*at);
    left.erase(at);
  }
  std::ranges::sort(chosen);
  return chosen;
}

static const GgmlType* ggml_type_of(const QuantFormat& format) {
  for (const GgmlType& type : ggml_types()) {
    if (type.format && type.format->kind == format.kind && type.block_elements > 1) return &type;
  }
  return nullptr;
}

namespace {

/// Any codes but NaN, and scales that keep numbers below 1.
void fill_fp8(EncodedWeight& w, Random& random) {
  for (std::byte& code : w.data) {
    const int64_t number = random.below(256);
    code = static_cast<std::byte>((number & 0x7f) == 0x7f ? 0x7e : number);
  }
  if (w.format.dtype == DType::kF8E8M0) {
    for (std::byte& scale : w.scales) scale = static_cast<std::byte>(114 + random.below(5));
    return;
  }
  std::byte* to = w.scales.data();
  while (to != w.scales.data() + w.scales.size()) {
    to = store_float(to, random.uniform(0.0002f, 0.002f), w.format.dtype);
  }
}

/// Any codes, scales in f32 and zero points near the middle of codes.
void fill_whole_numbers(EncodedWeight& w, Random& random) {
  for (std::byte& code : w.data) code = static_cast<std::byte>(random.below(256));
  const int64_t middle = int64_t{1} << (w.format.bits - 1);
  std::byte* to = w.scales.data();
  while (to != w.scales.data() + w.scales.size()) {
    to = store_float(to, random.uniform(0.0002f, 0.002f), DType::kF32);
    to = store_float(to, static_cast<float>(middle - 2 + random.below(5)), DType::kF32);
  }
}

}  // namespace

EncodedWeight random_weight(Random& random, const QuantFormat& format, int64_t rows, int64_t cols) {
  if (format.order == WeightOrder::kTiled) {
    return tiled(random_weight(random, format.with_order(WeightOrder::kRowMajor), rows, cols));
  }
  const Parts<uint64_t> sizes = part_bytes(format, rows, cols);
  EncodedWeight w{format,
                  rows,
                  cols,
                  std::vector<std::byte>(sizes.codes),
                  std::vector<std::byte>(sizes.scales),
                  std::vector<std::byte>(sizes.offsets),
                  std::vector<float>(static_cast<size_t>(rows * cols))};
  const std::vector<float> values = random.floats(rows * cols);
  if (format.is_affine()) {
    encode_affine(w, values);
  } else if (const GgmlType* const type = ggml_type_of(format)) {
    std::mt19937 blocks(static_cast<uint32_t>(random.next()));
    for (size_t at = 0; at < w.data.size(); at += static_cast<size_t>(type->block_bytes)) {
      testing::fill_block(*type, blocks, reinterpret_cast<uint8_t*>(w.data.data()) + at);
    }
    if (format.outer_scale) {
      w.biases.resize(sizeof(float));
      store_float(w.biases.data(), 0.75f + values[0] / 4.0f, DType::kF32);
    }
  } else if (format.kind == &fp8_format) {
    fill_fp8(w, random);
  } else if (format.kind == &grouped_int_format) {
    fill_whole_numbers(w, random);
  } else {
    std::byte* to = w.data.data();
    for (const float value : values) to = store_float(to, value, format.dtype);
  }
  Session session(reference());
  const Weight view = session.weight(w);
  for (int64_t r = 0; r < rows; ++r) {
    decode_row(
        view, r,
        std::span(w.decoded).subspan(static_cast<size_t>(r * cols), static_cast<size_t>(cols)));
  }
  return w;
}

EncodedWeight tiled(const EncodedWeight& w) {
  EncodedWeight to{w.format.with_order(WeightOrder::kTiled), w.rows, w.cols, {}, {}, {}, w.decoded};
  to.data.resize(w.data.size() + w.scales.size() + w.biases.size());
  tiled::tile(to.data, {w.data, w.scales, w.biases}, w.format, w.rows, w.cols);
  return to;
}

EncodedWeight untiled(const EncodedWeight& w) {
  const QuantFormat format = w.format.with_order(WeightOrder::kRowMajor);
  EncodedWeight to{format, w.rows, w.cols, {}, {}, {}, w.decoded};
  const Parts<uint64_t> bytes = part_bytes(format, w.rows, w.cols);
  to.data.resize(bytes.codes);
  to.scales.resize(bytes.scales);
  to.biases.resize(bytes.offsets);
  tiled::untile(to.data, to.scales, to.biases, w.data, format, w.rows, w.cols);
  return to;
}

std::vector<QuantFormat> unit_formats() {
  return {QuantFormat::affine(4, 64, DType::kBf16),
          QuantFormat::affine(8, 64, DType::kF16),
          QuantFormat::affine(4, 128, DType::kF16),
          QuantFormat::affine(8, 128, DType::kBf16),
          QuantFormat::affine(4, 32, DType::kBf16),
          QuantFormat::affine(8, 32, DType::kF16),
          QuantFormat::affine(4, 32, DType::kF32),
          QuantFormat::affine(8, 64, DType::kF32),
          integers_of(grouped_int_format, 4, 128, DType::kF32),
          integers_of(grouped_int_format, 8, 0, DType::kF32)};
}

std::vector<QuantFormat> tiled_formats() {
  std::vector<QuantFormat> formats;
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    for (const int bits : {4, 8}) {
      for (const int group : {32, 64, 128}) {
        formats.push_back(QuantFormat::affine(bits, group, dtype).with_order(WeightOrder::kTiled));
      }
    }
  }
  return formats;
}

std::vector<QuantFormat> all_formats() {
  std::vector<QuantFormat> formats;
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    formats.push_back(QuantFormat::plain(dtype));
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {32, 64, 128}) {
        formats.push_back(QuantFormat::affine(bits, group, dtype));
      }
    }
  }
  return formats;
}

std::vector<QuantFormat> some_formats() {
  return {QuantFormat::plain(DType::kF32),
          QuantFormat::plain(DType::kBf16),
          QuantFormat::plain(DType::kF16),
          QuantFormat::affine(4, 64, DType::kBf16),
          QuantFormat::affine(4, 32, DType::kF16),
          QuantFormat::affine(8, 64, DType::kBf16),
          QuantFormat::affine(3, 64, DType::kBf16),
          QuantFormat::affine(6, 128, DType::kF32),
          fp8_of(DType::kF32, 128, 128),
          fp8_of(DType::kF8E8M0, 1, 32)};
}

std::vector<QuantFormat> block_and_some_formats() {
  std::vector<QuantFormat> formats = some_formats();
  for (const GgmlType& type : testing::block_types()) {
    if (type.format) formats.push_back(*type.format);
  }
  return formats;
}

Session::Session(Device& device, size_t scratch_bytes) : device_(device) {
  auto encoder = device.create_encoder(scratch_bytes);
  EXPECT_TRUE(encoder.ok());
  encoder_ = std::move(encoder).value();
}

Tensor Session::bytes(const Shape& shape, DType dtype, std::span<const std::byte> values) {
  auto buffer = device_.allocate(values.size(), MemoryKind::kDevice);
  EXPECT_TRUE(buffer.ok());
  buffers_.push_back(std::move(buffer).value());
  const Tensor tensor = Tensor::view(*buffers_.back(), 0, shape, dtype);
  encoder_->write(tensor, values);
  return tensor;
}

Tensor Session::floats(const Shape& shape, std::span<const float> values) {
  return bytes(shape, DType::kF32, std::as_bytes(values));
}

Tensor Session::floats(const Shape& shape, std::span<const float> values, DType type) {
  if (type == DType::kF32) return floats(shape, values);
  std::vector<F16> halves;
  for (const float value : values) halves.push_back(to_f16(value));
  return bytes(shape, DType::kF16, std::as_bytes(std::span(halves)));
}

Tensor Session::ints(const Shape& shape, std::span<const int32_t> values) {
  return bytes(shape, DType::kI32, std::as_bytes(values));
}

Tensor Session::zeros(const Shape& shape, DType dtype) {
  const auto size = static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
  return bytes(shape, dtype, std::vector<std::byte>(size));
}

Weight Session::weight(const EncodedWeight& w) {
  Weight weight;
  weight.format = w.format;
  weight.rows = w.rows;
  weight.cols = w.cols;
  if (!w.format.is_affine()) {
    const Weight layout = lay_out(w.format, w.rows, w.cols);
    const Tensor& codes = layout.parts.codes;
    weight.parts.codes = bytes(codes.shape, codes.dtype, w.data);
    if (layout.has(PartRole::kScales)) {
      const Tensor& scales = layout.parts.scales;
      weight.parts.scales = bytes(scales.shape, scales.dtype, w.scales);
    }
    if (layout.has(PartRole::kColumnMap)) {
      std::vector<int32_t> groups(static_cast<size_t>(w.cols));
      const auto width = w.format.group_size == 0 ? groups.size() : size_t(w.format.group_size);
      for (size_t c = 0; c < groups.size(); ++c) groups[c] = static_cast<int32_t>(c / width);
      weight.parts.column_map = bytes({w.cols}, DType::kI32, std::as_bytes(std::span(groups)));
    }
    if (w.format.outer_scale) weight.parts.outer_scale = bytes({1}, DType::kF32, w.biases);
    return weight;
  }
  if (w.format.order == WeightOrder::kTiled) {
    // A device that does not ask for tiles never gets any: it gets what they were made of.
    const QuantFormat rows = w.format.with_order(WeightOrder::kRowMajor);
    if (device_.preferred_order(rows, w.rows, w.cols) != WeightOrder::kTiled) {
      return this->weight(untiled(w));
    }
    weight.parts.codes = bytes({static_cast<int64_t>(w.data.size())}, DType::kU8, w.data);
    return weight;
  }
  const int64_t groups = w.cols / w.format.group_size;
  weight.parts.codes = bytes({w.rows, w.cols * w.format.bits / 32}, DType::kU32, w.data);
  weight.parts.scales = bytes({w.rows, groups}, w.format.dtype, w.scales);
  weight.parts.offsets = bytes({w.rows, groups}, w.format.dtype, w.biases);
  return weight;
}

std::vector<float> Session::read(const Tensor& tensor) {
  const auto count = static_cast<size_t>(tensor.num_elements());
  std::vector<float> values(count);
  if (tensor.dtype == DType::kF16) {
    std::vector<F16> halves(count);
    EXPECT_TRUE(encoder_->read(std::as_writable_bytes(std::span(halves)), tensor).ok());
    std::ranges::transform(halves, values.begin(), [](F16 half) { return to_float(half); });
    return values;
  }
  const Status status = encoder_->read(std::as_writable_bytes(std::span(values)), tensor);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message());
  return values;
}

std::vector<int32_t> Session::read_ints(const Tensor& tensor) {
  std::vector<int32_t> values(static_cast<size_t>(tensor.num_elements()));
  const Status status = encoder_->read(std::as_writable_bytes(std::span(values)), tensor);
  EXPECT_TRUE(status.ok());
  return values;
}

void compare_with_reference(const Comparison& comparison, const Run& run) {
  Session oracle(reference());
  const std::vector<float> expected = run(oracle);
  ASSERT_EQ(expected.size(), comparison.tolerance.size());
  std::string family;
  std::vector<float> first;
  for (const NamedDevice& device : devices()) {
    if (device.is_slow && !comparison.on_slow_devices) continue;
    if (comparison.has_narrow_cache && !device.device->takes_narrow_cache()) continue;
    if (comparison.has_mixed_cache && !device.device->takes_mixed_cache()) continue;
    const auto [got, allowed] = run_on(device, run);
    ASSERT_EQ(got.size(), expected.size());
    matrix().add(comparison.op, device.name,
                 compare(comparison, device.name, allowed, expected, got));
    if (device.family != family) {
      family = device.family;
      first = got;
    } else {
      expect_same_bits(
          formatted("{}[{} against 1 thread, {}]", comparison.op, device.name, comparison.label),
          first, got);
    }
  }
}

void expect_same_bits(const std::string& what, std::span<const float> expected,
                      std::span<const float> got) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &got[i], sizeof(float)) == 0) continue;
    ADD_FAILURE() << formatted("{}: element {} of {} expected {:a} got {:a}", what, i,
                               expected.size(), expected[i], got[i]);
    return;
  }
}

void expect_same_results(const std::string& what, const std::vector<std::vector<float>>& expected,
                         const std::vector<std::vector<float>>& got) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    expect_same_bits(formatted("{}, result {}", what, i), expected[i], got[i]);
  }
}

double norm(std::span<const float> x) {
  double squares = 0.0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

float largest(std::span<const float> x) {
  float most = 0.0f;
  for (const float value : x) most = std::max(most, std::abs(value));
  return most;
}

std::span<const float> row_of(const std::vector<float>& values, int64_t row, int64_t width) {
  return std::span(values).subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
}

float dot_tolerance(std::span<const float> w, std::span<const float> x) {
  const double length = static_cast<double>(w.size());
  return static_cast<float>(kRounding * (4.0 + std::sqrt(length)) * norm(w) * norm(x));
}

}  // namespace moeflux::conformance
