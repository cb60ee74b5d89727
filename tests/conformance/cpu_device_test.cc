// Promises of the CPU alone: options, errors that stick, empty steps, and its exponential.
#include "backend/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "backend/cpu/isa_choice.h"
#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"
#include "tests/support/one_sequence.h"
#include "tests/support/temp_folder.h"

namespace moeflux::conformance {
namespace {

TEST(CpuDevice, DescribesKernelsAndThreads) {
  auto device = make_cpu_device({.threads = 1, .isa = "generic"});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->name(), "cpu");
  EXPECT_EQ((*device)->description(), "cpu (generic f32, 1 thread)");
}

TEST(CpuDevice, PrecisionIsInt8WhereThatIsFasterUnlessForced) {
  for (const cpu::KernelSet* kernels : cpu::supported_kernels()) {
    const std::string isa = kernels->name;
    const auto chosen = [&](Precision precision) {
      const CpuOptions options{.threads = 1, .isa = isa, .precision = precision};
      const auto got = chosen_precision(options);
      const auto device = make_cpu_device(options);
      EXPECT_TRUE(got.ok() && device.ok());
      const char* name = *got == Precision::kInt8 ? "int8" : "f32";
      EXPECT_EQ((*device)->description(), formatted("cpu ({} {}, 1 thread)", isa, name));
      return *got;
    };
    EXPECT_EQ(chosen(Precision::kF32), Precision::kF32);
    EXPECT_EQ(chosen(Precision::kInt8), Precision::kInt8);
    const bool is_portable = isa == "generic" || isa == "neon";
    EXPECT_EQ(chosen(Precision::kAuto), is_portable ? Precision::kF32 : Precision::kInt8) << isa;
  }
  EXPECT_EQ(chosen_precision({.isa = "avx9", .precision = Precision::kAuto}).error().code(),
            ErrorCode::kInvalidArgument);
}

TEST(CpuDevice, PortableSetsShareTheirBitsAndTheirPrecision) {
  const std::vector<const cpu::KernelSet*> sets = cpu::portable_kernels();
  EXPECT_STREQ(sets.back()->name, "portable-generic");
  const auto best = cpu::choose_kernels("portable");
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(*best, sets.front());
  for (const cpu::KernelSet* kernels : sets) {
    const CpuOptions options{.threads = 1, .isa = kernels->name, .precision = Precision::kAuto};
    const auto device = make_cpu_device(options);
    ASSERT_TRUE(device.ok());
    EXPECT_EQ((*device)->bits_key(), "cpu portable int8");
    EXPECT_EQ((*device)->description(), formatted("cpu ({} int8, 1 thread)", kernels->name));
  }
  // No machine has both.
  const auto avx2 = cpu::choose_kernels("portable-avx2");
  const auto neon = cpu::choose_kernels("portable-neon-i8mm");
  ASSERT_TRUE(!avx2.ok() || !neon.ok());
  const Error& lacking = avx2.ok() ? neon.error() : avx2.error();
  EXPECT_EQ(lacking.code(), ErrorCode::kUnsupported);
  EXPECT_NE(lacking.message().find("portable, portable-"), std::string::npos) << lacking.message();
  EXPECT_EQ(cpu::choose_kernels("portable-avx9").error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cpu::choose_kernels("portables").error().code(), ErrorCode::kInvalidArgument);
}

TEST(CpuDevice, RefusesUnknownInstructionSetsAndThreadCounts) {
  auto device = make_cpu_device({.threads = 1, .isa = "avx9"});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(device.error().message().find("generic"), std::string::npos);
  EXPECT_EQ(make_cpu_device({.threads = -1, .isa = ""}).error().code(),
            ErrorCode::kInvalidArgument);
}

TEST(CpuDevice, NamesWhatTheMachineHasWhenItLacksAnInstructionSet) {
  // No machine has both.
  const auto avx2 = cpu::choose_kernels("avx2");
  const auto neon = cpu::choose_kernels("neon");
  ASSERT_TRUE(!avx2.ok() || !neon.ok());
  const Error& error = avx2.ok() ? neon.error() : avx2.error();
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_NE(error.message().find("generic"), std::string::npos) << error.message();
}

TEST(CpuDevice, MemoryIsZeroedAndPageAligned) {
  auto buffer = devices().front().device->allocate(5 << 20, MemoryKind::kDevice);
  ASSERT_TRUE(buffer.ok());
  if ((*buffer)->host_data() == nullptr) GTEST_SKIP() << "hardware: the host cannot look";
  const auto address = reinterpret_cast<uintptr_t>((*buffer)->host_data());
  EXPECT_EQ(address % 4096, 0u);
  EXPECT_EQ((*buffer)->host_data()[(5 << 20) - 1], std::byte{0});
}

#ifdef __linux__
// A made-up /sys has a node for each of two cores. The weight is large enough to be interleaved.
TEST(CpuDevice, NodesOfMemoryPlaceThreadsAndChangeNoBit) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "hardware: one usable core: one node of memory";
  const testing::TempFolder root;
  const std::string nodes = root / "sys/devices/system/node";
  for (const int node : {0, 1}) {
    std::filesystem::create_directories(formatted("{}/node{}", nodes, node));
    testing::write_bytes(formatted("{}/node{}/cpulist", nodes, node),
                         formatted("{}\n", cores[static_cast<size_t>(node)]));
  }
  testing::write_bytes(nodes + "/online", "0-1\n");
  Random random(41);
  const EncodedWeight w =
      random_weight(random, QuantFormat::affine(8, 64, DType::kF32), 2048, 1024);
  const std::vector<float> x = random.floats(3 * 1024);
  const auto product = [&](NumaMode numa, const std::string& placed) {
    const auto device = make_cpu_device({.threads = 4, .numa = numa, .system_root = root.path()});
    EXPECT_TRUE(device.ok());
    EXPECT_NE((*device)->description().find(placed), std::string_view::npos)
        << (*device)->description();
    Session s(**device);
    std::atomic<int> placed_threads{0};
    std::atomic<int> arrived{0};
    // Each task waits for the others, so that all threads take part.
    s.encoder().run_on_host(4, [&](int64_t) {
      placed_threads += allowed_cores().size() == 1 ? 1 : 0;
      ++arrived;
      while (arrived.load() < 4) std::this_thread::yield();
    });
    EXPECT_EQ(placed_threads.load(), numa == NumaMode::kOff ? 0 : 3);  // the caller's is not
    const Tensor out = s.zeros({3, 2048});
    s.encoder().run(ops::Linear{out, s.floats({3, 1024}, x), s.weight(w)});
    return s.read(out);
  };
  const std::vector<float> plain = product(NumaMode::kOff, " 4 threads)");
  EXPECT_EQ(product(NumaMode::kDistribute, " 4 threads on 2 nodes)"), plain);
  EXPECT_EQ(product(NumaMode::kIsolate, " 4 threads on node "), plain);
}
#endif

TEST(CpuEncoder, AnUnsupportedFormatSticksAndSurfacesInReadAndWait) {
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    Random random(50);
    EncodedWeight w = random_weight(random, QuantFormat::affine(4, 32, DType::kF32), 4, 32);
    Weight weight = s.weight(w);
    weight.format.bits = 7;
    const Tensor out = s.zeros({1, 4});
    s.encoder().run(ops::Linear{out, s.zeros({1, 32}), weight});
    float value[4];
    const Status read = s.encoder().read(std::as_writable_bytes(std::span(value)), out);
    ASSERT_FALSE(read.ok()) << device->name;
    EXPECT_EQ(read.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(read.error().message().find("affine-7/32"), std::string::npos);
    EXPECT_FALSE(s.encoder().wait(s.encoder().submit()).ok());
  }
}

TEST(CpuEncoder, KeptResourcesAreReleased) {
  struct Flag : Retained {
    explicit Flag(bool& flag) : released(flag) {}
    ~Flag() override { released = true; }
    bool& released;
  };
  Session s(*devices().front().device);
  bool released = false;
  s.encoder().keep_alive(std::make_unique<Flag>(released));
  EXPECT_TRUE(s.encoder().wait(s.encoder().submit()).ok());
  EXPECT_TRUE(released);
}

TEST(CpuEncoder, ScratchNestsAndIsAligned) {
  auto encoder = devices().front().device->create_encoder(4096);
  ASSERT_TRUE(encoder.ok());
  Encoder& e = **encoder;
  const size_t before = e.scratch_mark();
  {
    const ScratchScope scope(e);
    const Tensor a = e.scratch({3}, DType::kF32);
    const Tensor b = e.scratch({100}, DType::kF32);
    EXPECT_EQ(b.offset_bytes % 64, 0u);
    if (b.buffer->host_data() == nullptr) GTEST_SKIP() << "hardware: the host cannot look";
    EXPECT_EQ(reinterpret_cast<uintptr_t>(host_ptr<float>(b)) % 64, 0u);
    EXPECT_NE(host_ptr<float>(a), host_ptr<float>(b));
  }
  EXPECT_EQ(e.scratch_mark(), before);
}

TEST(EmptyStep, EveryOpAcceptsZeroTokens) {
  Random random(51);
  std::vector<Device*> all = {&reference()};
  for (const NamedDevice* device : one_device_per_family()) all.push_back(device->device.get());
  const EncodedWeight w = random_weight(random, QuantFormat::affine(4, 32, DType::kBf16), 8, 32);
  for (Device* device : all) {
    Session s(*device);
    Encoder& e = s.encoder();
    const Tensor x = s.zeros({0, 32});
    const Tensor heads = s.zeros({0, 2, 16});
    const Tensor ids = s.zeros({0, 2}, DType::kI32);
    const Routes routes{ids, s.zeros({0, 2})};
    e.run(ops::Copy{x, x});
    e.run(ops::Add{x, x, x});
    e.run(ops::MulActivated{x, x, x, Activation::kSilu});
    e.run(ops::RmsNorm{x, x, s.zeros({32}), 1e-6f});
    e.run(ops::Embed{x, s.weight(w), s.zeros({0}, DType::kI32)});
    e.run(ops::Linear{s.zeros({0, 8}), x, s.weight(w)});
    const HeadRows head_rows{.head_stride = 4, .row_begin = 0, .rows_per_head = 2};
    const Tensor wide = s.zeros({0, 2, 32});
    const Tensor narrow = s.zeros({0, 2, 2});
    e.run(ops::HeadLinear{narrow, wide, s.weight(w), head_rows});
    e.run(ops::HeadLinearTransposed{wide, narrow, s.weight(w), head_rows});
    e.run(ops::AddBias{x, s.zeros({32})});
    e.run(ops::Scale{x, x, 2.0f});
    e.run(ops::SoftCap{x, 30.0f});
    e.run(ops::Glu{x, x, x, {}});
    e.run(ops::Rope{heads, s.zeros({0}, DType::kI32), s.zeros({8}), {.rotary_dim = 16}});
    const std::vector<Tensor> pages = {s.zeros({4, 2, 16})};
    e.run(ops::Attention{
        heads, heads, heads, heads, testing::one_sequence(heads.dim(0), {pages, pages, 4, 0}), {}});
    const Tensor state = s.floats({3, 32}, std::vector<float>(96, 1.5f));
    e.run(ops::CausalConv{
        s.zeros({0, 32}), x, s.zeros({32, 4}), {}, testing::one_sequence(x.dim(0), state)});
    EXPECT_EQ(s.read(state), std::vector<float>(96, 1.5f));
    const Tensor delta = s.floats({1, 8, 16}, std::vector<float>(128, 2.5f));
    e.run(ops::GatedDelta{s.zeros({0, 1, 16}),
                          x,
                          s.zeros({0, 1}),
                          s.zeros({0, 1}),
                          s.zeros({1}),
                          s.zeros({1}),
                          testing::one_sequence(x.dim(0), delta),
                          {1, 1, 8, 16}});
    EXPECT_EQ(s.read(delta), std::vector<float>(128, 2.5f));
    e.run(ops::Route{routes, s.zeros({0, 4}), {}});
    e.run(ops::ExpertFfn{s.zeros({0, 2, 32}), s.zeros({0, 2, 32}), x, routes, {}, {}});
    e.run(ops::CombineExperts{x, s.zeros({0, 2, 32}), routes});
    EXPECT_TRUE(e.wait(e.submit()).ok()) << device->description();
  }
}

TEST(Exp, IsWithinTwoUlpOverItsWholeRange) {
  std::vector<float> x;
  for (float value = -87.0f; value <= 88.5f; value += 0.0037f) x.push_back(value);
  for (float value = 1e-8f; value < 1.0f; value *= 1.01f) {
    x.push_back(value);
    x.push_back(-value);
  }
  x.push_back(0.0f);
  std::vector<float> got(x.size());
  for (const cpu::KernelSet* kernels : cpu::supported_kernels()) {
    kernels->ops->exp(got.data(), x.data(), static_cast<int64_t>(x.size()));
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      const auto nearest = static_cast<float>(exact);
      const double ulp = static_cast<double>(std::nextafter(nearest, HUGE_VALF)) - nearest;
      worst = std::max(worst, std::abs(got[i] - exact) / ulp);
    }
    EXPECT_LE(worst, 2.0) << kernels->name;
  }
}

TEST(Exp, SaturatesAtItsEndsAndKeepsNaN) {
  const float inf = HUGE_VALF;
  const std::vector<float> x = {-inf, -1e30f, -104.5f, 89.5f, 1e30f, inf, std::nanf(""), 0.0f};
  std::vector<float> got(x.size());
  for (const cpu::KernelSet* kernels : cpu::supported_kernels()) {
    kernels->ops->exp(got.data(), x.data(), static_cast<int64_t>(x.size()));
    for (const size_t i : {0u, 1u, 2u}) EXPECT_EQ(got[i], 0.0f) << kernels->name << " " << x[i];
    for (const size_t i : {3u, 4u, 5u}) EXPECT_EQ(got[i], inf) << kernels->name << " " << x[i];
    EXPECT_TRUE(std::isnan(got[6])) << kernels->name;
    EXPECT_EQ(got[7], 1.0f) << kernels->name;
  }
}

}  // namespace
}  // namespace moeflux::conformance
