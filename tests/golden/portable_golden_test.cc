// --cpu-isa portable: the bits of a model's numbers are those of every processor. The instruction
// sets of this processor are compared with the portable code, and that with a digest from another.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/format.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

// By no list of the backend's own: "portable" is what users write.
std::vector<std::string> portable_sets() {
  std::vector<std::string> names = {"portable"};
  for (const char* name : {"portable-avx2", "portable-avx-vnni", "portable-avx512-vnni",
                           "portable-avx512-amx", "portable-neon-dotprod", "portable-neon-i8mm"}) {
    if (make_cpu_device({.threads = 1, .isa = name}).ok()) names.emplace_back(name);
  }
  return names;
}

void expect_same_floats(const std::string& what, const std::vector<float>& expected,
                        const std::vector<float>& got) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &got[i], sizeof(float)) == 0) continue;
    FAIL() << what << ": number " << i << " is " << formatted("{}", got[i]) << ", expected "
           << formatted("{}", expected[i]);
  }
}

void expect_the_bits_of_portable_code(const std::string& directory,
                                      const std::vector<TokenId>& tokens, RunOptions options) {
  options.hidden_states = true;
  options.device = "cpu portable-generic";
  const RunOutput expected = run_model(directory, tokens, options);
  ASSERT_FALSE(expected.logits.empty());
  for (const std::string& isa : portable_sets()) {
    options.device = "cpu " + isa;
    const RunOutput got = run_model(directory, tokens, options);
    for (const auto& [layer, states] : expected.hidden_states) {
      expect_same_floats(formatted("{}, layer {}", isa, layer), states,
                         got.hidden_states.at(layer));
    }
    expect_same_floats(isa + ", logits", expected.logits, got.logits);
  }
}

class PortableGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(PortableGolden, EveryInstructionSetHasTheSameBits) {
  const std::string folder = golden_folder(GetParam());
  const std::vector<TokenId> tokens = read_golden(folder + "/golden.safetensors")["tokens"].ints;
  ASSERT_FALSE(tokens.empty());
  const std::vector<int64_t> chunks = {static_cast<int64_t>(tokens.size()) - 5, 1};
  expect_the_bits_of_portable_code(folder, tokens,
                                   {.precision = Precision::kAuto, .chunks = chunks});
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(folder, quantized.path(), twin.path(), {});
  expect_the_bits_of_portable_code(quantized.path(), tokens,
                                   {.precision = Precision::kAuto, .chunks = chunks});
}

INSTANTIATE_TEST_SUITE_P(Families, PortableGolden, ::testing::ValuesIn(asked(golden_families())),
                         [](const auto& family) { return family.param; });

std::vector<TokenId> long_text() {
  const auto golden = read_golden(tests_directory() + "/golden/models/fable-20m.safetensors");
  const std::vector<TokenId>& words = golden.at("tokens0").ints;
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < 300; ++i) tokens.push_back(words[i * 7 % words.size()]);  // over a page
  return tokens;
}

uint64_t digest_of(const std::vector<float>& values) {
  uint64_t digest = 14695981039346656037u;
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    digest = (digest ^ bits) * 1099511628211u;
  }
  return digest;
}

// Digests of an x86-64 with AVX-512: where one differs, this processor computes other bits.
TEST(PortableGolden, TheEmbeddedModelHasTheBitsOfOtherMachines) {
  const std::string fable = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
  struct Case {
    Precision precision;
    uint64_t digest;
  };
  for (const Case& c : {Case{Precision::kAuto, 1850105346735218579u},
                        {Precision::kF32, 9825786848921835648u},
                        {Precision::kQ16, 6294716697552028771u}}) {
    const std::string name(precision_name(c.precision));
    SCOPED_TRACE(name);
    const RunOptions options{
        .device = "cpu portable", .precision = c.precision, .chunks = {296, 1}};
    EXPECT_EQ(digest_of(run_model(fable, long_text(), options).logits), c.digest);
    expect_the_bits_of_portable_code(fable, long_text(), options);
  }
}

}  // namespace
}  // namespace moeflux::testing
