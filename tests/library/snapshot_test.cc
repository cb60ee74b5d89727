// Snapshots across processes, and the program's text against the library's.
#include "tests/library/library_model.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr const char* kSnapshotVariable = "MOEFLUX_TEST_SNAPSHOT";

class SnapshotTest : public LibraryTest {
 protected:
  /// A sequence in the middle of a text, its sampler too.
  Sequence begun() {
    Sequence sequence = take(model_.create_sequence());
    expect_ok(sequence.set_sampler({.repeat_penalty = 1.1f, .seed = 11}));
    text(sequence, story(), {.tokens_max = 10});
    return sequence;
  }
};

TEST_F(SnapshotTest, BytesBringBackTokensLogitsAndSampler) {
  Sequence sequence = begun();
  const Snapshot snapshot = take(sequence.save());
  Sequence loaded = take(model_.create_sequence());
  expect_ok(loaded.eval(story()));
  expect_ok(loaded.load(snapshot.bytes()));
  EXPECT_EQ(take(loaded.tokens()), take(sequence.tokens()));
  EXPECT_EQ(logits(loaded), logits(sequence));
  EXPECT_EQ(text(loaded, {}, {.tokens_max = 20}), text(sequence, {}, {.tokens_max = 20}));
}

TEST_F(SnapshotTest, DamagedBytesAreRefusedAndChangeNothing) {
  Sequence sequence = begun();
  const Snapshot snapshot = take(sequence.save());
  const std::vector<std::byte> whole(snapshot.bytes().begin(), snapshot.bytes().end());
  Sequence other = take(model_.create_sequence());
  expect_ok(other.eval(story()));
  const std::vector<float> before = logits(other);
  for (size_t cut = 0; cut < whole.size(); cut += 1 + whole.size() / 37) {
    EXPECT_FALSE(other.load(std::span(whole).first(cut)).ok()) << cut;
  }
  for (size_t i = 0; i < whole.size(); i += 1 + whole.size() / 211) {
    std::vector<std::byte> flipped = whole;
    flipped[i] ^= std::byte{0x10};
    EXPECT_FALSE(other.load(flipped).ok()) << i;
  }
  expect_error(other.load({}), Code::kCorruption, {});
  EXPECT_EQ(take(other.tokens()), story());
  EXPECT_EQ(logits(other), before);
}

TEST_F(SnapshotTest, FilesAreReplacedWhole) {
  const TempFolder folder;
  Sequence sequence = begun();
  expect_ok(sequence.save_file(folder / "state"));
  expect_ok(sequence.save_file(folder / "state"));
  Sequence loaded = take(model_.create_sequence());
  expect_ok(loaded.load_file(folder / "state"));
  EXPECT_EQ(logits(loaded), logits(sequence));
  expect_error(loaded.load_file(folder / "missing"), Code::kNotFound, {"missing"});
  EXPECT_FALSE(sequence.save_file(folder / "no/such/folder").ok());
}

// The other process of the next test.
TEST_F(SnapshotTest, DISABLED_ContinuesTheTextOfAFile) {
  const char* folder = std::getenv(kSnapshotVariable);
  ASSERT_NE(folder, nullptr);
  Sequence loaded = take(model_.create_sequence());
  expect_ok(loaded.load_file(std::string(folder) + "/state"));
  const std::vector<float> row = logits(loaded);
  write_bytes(std::string(folder) + "/logits",
              {reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float)});
  write_bytes(std::string(folder) + "/text", text(loaded, {}, {.tokens_max = 20}));
}

TEST_F(SnapshotTest, AnotherProcessGoesOnWhereThisOneStopped) {
  const TempFolder folder;
  Sequence sequence = begun();
  expect_ok(sequence.save_file(folder / "state"));
  ::setenv(kSnapshotVariable, folder.path().c_str(), 1);
  const ProgramOutput child = run_program(
      ::testing::internal::GetArgvs().front(),
      {"--gtest_also_run_disabled_tests", "--gtest_filter=*DISABLED_ContinuesTheTextOfAFile"});
  ASSERT_EQ(child.status, 0) << child.out << child.err;
  const std::vector<float> row = logits(sequence);
  EXPECT_EQ(read_bytes(folder / "logits"),
            std::string(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float)));
  EXPECT_EQ(read_bytes(folder / "text"), text(sequence, {}, {.tokens_max = 20}));
}

TEST_F(SnapshotTest, GenerateWritesTheProgramsText) {
  const std::string prompt = "The old king";
  for (const char* seed : {"0", "7"}) {
    const ProgramOutput program =
        run_program(MOEFLUX_PROGRAM, {"run", "-q", "-m", fable(), "-n", "40", "-s", seed, prompt});
    ASSERT_EQ(program.status, 0) << program.err;
    Sequence sequence = take(model_.create_sequence());
    expect_ok(sequence.set_sampler({.seed = std::stoull(seed)}));
    const auto tokens = take(model_.tokenize(prompt, MF_TOKENIZE_ADD_SPECIAL));
    EXPECT_EQ(text(sequence, tokens, {.tokens_max = 40}) + "\n", program.out);
  }
}

}  // namespace
}  // namespace moeflux::testing
