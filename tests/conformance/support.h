// Helpers of conformance tests: devices, seeded data, encoded weights, and comparison with
// evidence.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "backend/encoder.h"
#include "quant/weight.h"
#include "tests/support/watched_platform.h"

namespace moeflux::conformance {

/// A device under test. Devices of one family must agree bit for bit.
struct NamedDevice {
  std::string name;    // "avx512/2"
  std::string family;  // "avx512"
  std::unique_ptr<Device> device;
  bool is_slow = false;    // takes part only in some of many similar problems
  bool has_units = false;  // matrix units of a GPU
  std::unique_ptr<testing::LaunchCounts> launches = {};  // null: not counted, and no units
};
/// All devices that tests compare with the reference:
/// - the CPU at every instruction set this machine has, with 1, 2 and 3 threads;
/// - the CPU's portable bits, by the portable kernels and by the best ones that have the same;
/// - GPU kernels on the emulator, whose threads run in two different orders, once behind Metal's
///   command buffers;
/// - emulators with matrix units, one of which is a small GPU (tests/support/small_gpu.h);
/// - the first CUDA GPU, with graphs and without and as a small one;
/// - Apple's GPU.
const std::vector<NamedDevice>& devices();
/// Leaves the devices whose families begin with a name of `wanted`, like "cuda,avx2"; the names
/// that fit none.
std::vector<std::string> keep_families(std::vector<NamedDevice>& list, std::string_view wanted);
/// One device per family, with two threads; no emulator with matrix units, whose invariances have
/// tests of their own.
std::vector<const NamedDevice*> one_device_per_family();
/// Devices whose products and attention run on matrix units: CUDA GPUs, and emulators that have
/// some and take no part in tests for fast devices.
std::vector<const NamedDevice*> devices_with_units(bool fast_only = false);
Device& reference();

/// Uniform numbers from a seed, the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next();
  /// In [low, high).
  float uniform(float low, float high);
  int64_t below(int64_t limit) { return static_cast<int64_t>(next() >> 11) % limit; }
  std::vector<float> floats(int64_t count, float low = -1.0f, float high = 1.0f);
  /// `count` different ids below `limit`, ascending; where there are fewer, -1 stands before them.
  std::vector<int32_t> ids(int64_t count, int64_t limit);

 private:
  uint64_t state_;
};

/// A random matrix in its storage format, with what tolerances need to know about it.
struct EncodedWeight {
  QuantFormat format;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<std::byte> data;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;  // or the outer scale
  std::vector<float> decoded;     // [rows, cols]
};
EncodedWeight random_weight(Random& random, const QuantFormat& format, int64_t rows, int64_t cols);
/// The same matrix in tiled order; `w` is row-major and fits.
EncodedWeight tiled(const EncodedWeight& w);
/// The inverse of tiled().
EncodedWeight untiled(const EncodedWeight& w);
/// Every supported format: three plain ones, six widths x three groups x three scale types.
std::vector<QuantFormat> all_formats();
/// A handful that covers every kernel of row-major weights.
std::vector<QuantFormat> some_formats();
/// These, and every type of GGML whose rows are blocks.
std::vector<QuantFormat> block_and_some_formats();
/// Formats that matrix units multiply.
std::vector<QuantFormat> unit_formats();
/// Every format there may be tiles of, in tiled order.
std::vector<QuantFormat> tiled_formats();

/// One encoder of one device and the tensors a test put there.
class Session {
 public:
  /// Most operations take no scratch.
  explicit Session(Device& device, size_t scratch_bytes = size_t{1} << 16);

  Encoder& encoder() { return *encoder_; }
  Tensor floats(const Shape& shape, std::span<const float> values);
  /// Rounded to f16, if that is the type.
  Tensor floats(const Shape& shape, std::span<const float> values, DType type);
  Tensor ints(const Shape& shape, std::span<const int32_t> values);
  Tensor zeros(const Shape& shape, DType dtype = DType::kF32);
  Weight weight(const EncodedWeight& encoded);
  /// The numbers of a tensor of f32 or f16.
  std::vector<float> read(const Tensor& tensor);
  std::vector<int32_t> read_ints(const Tensor& tensor);

 private:
  Tensor bytes(const Shape& shape, DType dtype, std::span<const std::byte> values);

  Device& device_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

using Run = std::function<std::vector<float>(Session&)>;

/// A device's result, and how much more than by the rounding of f32 it may be off. 1, but where it
/// launched kernels for matrix units: they see activations as integers of 16 bits in place of 24,
/// of one factor for 64 columns. 16 is five deviations of such products' error where rows are
/// short, and numbers even; more columns average more.
struct Outcome {
  std::vector<float> values;
  double allowance = 1.0;
};
Outcome run_on(const NamedDevice& device, const Run& run);

/// The numbers that a result is compared with.
struct Comparison {
  std::string op;     // a row of the matrix: "linear"
  std::string label;  // "affine-4/64, 3x130x192"
  int64_t row_width = 1;
  /// Allowed absolute error of each output element.
  std::vector<float> tolerance;
  bool on_slow_devices = true;
  bool has_narrow_cache = false;  // leaves out devices that do not take one
  bool has_mixed_cache = false;   // the same
};

/// Runs on the reference and on every device; errors beyond tolerance and differences between
/// thread counts fail. Feeds the matrix printed at the end of the run.
void compare_with_reference(const Comparison& comparison, const Run& run);

/// Bit equality with a message that shows the first difference.
void expect_same_bits(const std::string& what, std::span<const float> expected,
                      std::span<const float> got);
/// The same of several results.
void expect_same_results(const std::string& what, const std::vector<std::vector<float>>& expected,
                         const std::vector<std::vector<float>>& got);

/// Half a unit in the last place of 1.0f.
constexpr float kRounding = 0x1p-24f;

/// The error model of a dot product: rounding * (4 + sqrt(length)) * |w| * |x|. Rounding errors of
/// a sum of `length` products are independent, so they grow with the root of the length.
float dot_tolerance(std::span<const float> w, std::span<const float> x);
/// Row `row` of a matrix of rows of `width`.
std::span<const float> row_of(const std::vector<float>& values, int64_t row, int64_t width);
double norm(std::span<const float> x);
float largest(std::span<const float> x);

}  // namespace moeflux::conformance
