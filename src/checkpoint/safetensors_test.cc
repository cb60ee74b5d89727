#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/format.h"
#include "tests/support/io/faulty_file.h"
#include "tests/support/io/memory_file.h"

namespace moeflux::safetensors {
namespace {

/// A file image: length, header, `data_bytes` zeros.
std::string image(std::string_view json, size_t data_bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text += static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i) & 0xff);
  }
  return text + std::string(json) + std::string(data_bytes, '\0');
}

std::string length_prefix(uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(length >> (8 * i) & 0xff);
  return text;
}

TEST(SafetensorsHeader, ReadsEntriesInOrderOfTheirData) {
  const std::string json = R"({"__metadata__":{"format":"mlx"},)"
                           R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[5,17]},)"
                           R"("a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                           R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[17,21]}}   )";
  const auto header = read_header(MemoryFile("m", image(json, 21)));
  ASSERT_TRUE(header.ok()) << header.error().to_string();
  EXPECT_EQ(header->data_offset, 8 + json.size());
  EXPECT_EQ(header->metadata, (std::map<std::string, std::string>{{"format", "mlx"}}));
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[1].name, "b");  // at an odd byte, as writers that do not pad leave it
  EXPECT_EQ(header->entries[1].dtype, DType::kBf16);
  EXPECT_EQ(header->entries[1].shape, Shape({2, 3}));
  EXPECT_EQ(header->entries[1].begin, 5u);
  EXPECT_EQ(header->entries[1].end, 17u);
  EXPECT_EQ(header->entries[2].shape.rank(), 0);
}

TEST(SafetensorsHeader, AcceptsWhatIsUnusualButSound) {
  const std::pair<const char*, uint64_t> cases[] = {
      {R"({})", 0},
      {R"({"__metadata__":{}})", 0},
      {R"({"__metadata__":null})", 0},
      // No tensor claims bytes 4 to 8, nor what follows.
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}})",
       100},
      // Tensors without elements, even inside of another's bytes.
      {R"({"a":{"dtype":"F32","shape":[2,0,3],"data_offsets":[2,2]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("c":{"dtype":"F4","shape":[0],"data_offsets":[4,4]}})",
       4},
      {R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", 3},
      {R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1},
      {R"({"a":{"extra":[1],"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1},
      {R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1},
  };
  for (const auto& [json, data_bytes] : cases) {
    const auto header = parse_header(json, data_bytes);
    EXPECT_TRUE(header.ok()) << json << "\n" << header.error().to_string();
  }
}

TEST(SafetensorsHeader, EveryDTypeHasItsSize) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const uint64_t bytes = static_cast<uint64_t>(dtype_bits(dtype));  // of eight elements
    const std::string json = R"({"a":{"dtype":")" + std::string(dtype_name(dtype)) +
                             R"(","shape":[8],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
    EXPECT_TRUE(parse_header(json, bytes).ok()) << json;
  }
}

struct Refusal {
  const char* fact;
  std::string json;
  uint64_t data_bytes;
  ErrorCode code;
  std::vector<std::string> words;  // of the message
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.json; }

/// A tensor "x.w" with these fields.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"x.w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

std::vector<Refusal> header_refusals() {
  const ErrorCode bad = ErrorCode::kCorruption;
  const ErrorCode unknown = ErrorCode::kUnsupported;
  return {
      {"Empty", "", 0, bad, {"nothing", "'{'"}},
      {"LeadingSpace", " {}", 0, bad, {"\" \"", "'{'"}},
      {"Array", "[1]", 0, bad, {"\"[\"", "'{'"}},
      {"NotJson", "{\"a\":", 0, bad, {"not valid JSON"}},
      {"TrailingText", "{} x", 0, bad, {"not valid JSON"}},
      {"InvalidUtf8", "{\"\xff\":1}", 0, bad, {"not valid JSON"}},
      {"DuplicateTensor",
       R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
       R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0,
       bad,
       {"\"t\"", "twice"}},
      {"DuplicateField",
       R"({"t":{"dtype":"U8","dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
       0,
       bad,
       {"\"dtype\"", "twice"}},
      {"EntryNotObject", R"({"x.w":[1,2]})", 0, bad, {"x.w", "[1,2]", "object"}},
      {"NoDType", R"({"x.w":{"shape":[0],"data_offsets":[0,0]}})", 0, bad, {"x.w", "no dtype"}},
      {"NoShape", R"({"x.w":{"dtype":"U8","data_offsets":[0,0]}})", 0, bad, {"x.w", "no shape"}},
      {"NoOffsets", R"({"x.w":{"dtype":"U8","shape":[0]}})", 0, bad, {"x.w", "no data_offsets"}},
      {"UnknownDType", tensor(R"("Q9")", "[0]", "[0,0]"), 0, unknown, {"x.w", "Q9", "BF16"}},
      {"DTypeNotString", tensor("7", "[0]", "[0,0]"), 0, bad, {"x.w", "7", "string"}},
  };
}

std::vector<Refusal> shape_refusals() {
  const ErrorCode bad = ErrorCode::kCorruption;
  const ErrorCode unknown = ErrorCode::kUnsupported;
  const std::string u8 = R"("U8")";
  return {
      {"ShapeNotArray", tensor(u8, "4", "[0,4]"), 4, bad, {"x.w", "4", "list"}},
      {"NegativeExtent", tensor(u8, "[-2]", "[0,2]"), 2, bad, {"x.w", "-2", "integer"}},
      {"TwoNegativeExtents", tensor(u8, "[-2,-2]", "[0,4]"), 4, bad, {"x.w", "-2", "integer"}},
      {"FractionalExtent", tensor(u8, "[1.5]", "[0,1]"), 1, bad, {"x.w", "1.5", "integer"}},
      {"FloatExtent", tensor(u8, "[4.0]", "[0,4]"), 4, bad, {"x.w", "4.0", "integer"}},
      {"TextExtent", tensor(u8, "[\"4\"]", "[0,4]"), 4, bad, {"x.w", "integer"}},
      {"ExtentBeyondInt64",
       tensor(u8, "[9223372036854775808]", "[0,0]"),
       0,
       bad,
       {"x.w", "922337203"}},
      {"ExtentBeyondUint64",
       tensor(u8, "[18446744073709551617]", "[0,1]"),
       1,
       bad,
       {"x.w", "integer"}},
      {"ProductOverflows",
       tensor(u8, "[4294967296,4294967296]", "[0,0]"),
       0,
       bad,
       {"x.w", "overflows"}},
      {"BitsOverflow",
       tensor(R"("F64")", "[1152921504606846976]", "[0,0]"),
       0,
       bad,
       {"x.w", "F64", "overflows"}},
      {"EmptyButOverflowing",
       tensor(u8, "[0,4294967296,4294967296]", "[0,0]"),
       0,
       bad,
       {"overflows"}},
      {"RankOverEight", tensor(u8, "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, unknown, {"x.w", "9", "8"}},
  };
}

std::vector<Refusal> data_refusals() {
  const ErrorCode bad = ErrorCode::kCorruption;
  const std::string u8 = R"("U8")";
  return {
      {"OffsetsNotArray", tensor(u8, "[1]", "1"), 1, bad, {"x.w", "two integers"}},
      {"OneOffset", tensor(u8, "[1]", "[1]"), 1, bad, {"x.w", "two integers"}},
      {"ThreeOffsets", tensor(u8, "[1]", "[0,1,2]"), 2, bad, {"x.w", "two integers"}},
      {"NegativeOffset", tensor(u8, "[1]", "[-1,0]"), 1, bad, {"x.w", "[-1,0]", "two integers"}},
      {"FractionalOffset", tensor(u8, "[1]", "[0,1.5]"), 2, bad, {"x.w", "two integers"}},
      {"DescendingOffsets", tensor(u8, "[1]", "[2,1]"), 4, bad, {"x.w", "[2,1]", "after"}},
      {"BeyondData", tensor(u8, "[5]", "[0,5]"), 4, bad, {"x.w", "byte 5", "which has 4"}},
      {"HugeOffset",
       tensor(u8, "[1]", "[0,18446744073709551615]"),
       4,
       bad,
       {"x.w", "18446744073709551615"}},
      {"TooFewBytes",
       tensor(R"("F32")", "[2]", "[0,7]"),
       8,
       bad,
       {"x.w", "7 bytes", "expected 8", "F32 [2]"}},
      {"TooManyBytes",
       tensor(R"("F32")", "[2]", "[0,9]"),
       9,
       bad,
       {"x.w", "9 bytes", "expected 8"}},
      {"EmptyTensorWithBytes", tensor(u8, "[0]", "[0,1]"), 1, bad, {"x.w", "expected 0"}},
      {"HalfAByte", tensor(R"("F4")", "[3]", "[0,2]"), 2, bad, {"x.w", "12 bits", "whole bytes"}},
      {"SixBitRemainder", tensor(R"("F6_E3M2")", "[3]", "[0,3]"), 3, bad, {"x.w", "18 bits"}},
      {"Overlap",
       R"({"x.w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("y.w":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
       8,
       bad,
       {"x.w", "[0, 4)", "y.w", "[3, 7)", "overlap"}},
      {"SameBytesTwice",
       R"({"x.w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("y.w":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})",
       4,
       bad,
       {"x.w", "y.w", "overlap"}},
      {"OverlapAcrossAnEmptyTensor",
       R"({"x.w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
       R"("y.w":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       4,
       bad,
       {"x.w", "y.w", "overlap"}},
      {"MetadataNotObject", R"({"__metadata__":"mlx"})", 0, bad, {"__metadata__", "mlx", "object"}},
      {"MetadataNumber",
       R"({"__metadata__":{"total":5}})",
       0,
       bad,
       {"__metadata__", "total", "5", "string"}},
  };
}

class SafetensorsRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(SafetensorsRefusal, NamesFileTensorFoundAndExpected) {
  const Refusal& refusal = GetParam();
  const auto header =
      read_header(MemoryFile("dir/model.safetensors", image(refusal.json, refusal.data_bytes)));
  ASSERT_FALSE(header.ok()) << refusal.json;
  const std::string& message = header.error().message();
  EXPECT_EQ(header.error().code(), refusal.code) << message;
  EXPECT_EQ(message.rfind("dir/model.safetensors: ", 0), 0u) << message;
  for (const std::string& word : refusal.words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' in: " << message;
  }
}

std::string fact_of(const ::testing::TestParamInfo<Refusal>& refusal) { return refusal.param.fact; }

INSTANTIATE_TEST_SUITE_P(Header, SafetensorsRefusal, ::testing::ValuesIn(header_refusals()),
                         fact_of);
INSTANTIATE_TEST_SUITE_P(Shape, SafetensorsRefusal, ::testing::ValuesIn(shape_refusals()), fact_of);
INSTANTIATE_TEST_SUITE_P(Data, SafetensorsRefusal, ::testing::ValuesIn(data_refusals()), fact_of);

void expect_refused(std::string_view bytes, std::initializer_list<const char*> words) {
  const auto header = read_header(MemoryFile("m.safetensors", bytes));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.error().code(), ErrorCode::kCorruption);
  for (const char* word : words) {
    EXPECT_NE(header.error().message().find(word), std::string::npos)
        << "'" << word << "' in: " << header.error().message();
  }
}

TEST(SafetensorsFile, ShorterThanTheLengthIsRefused) {
  expect_refused("", {"m.safetensors", "is empty"});
  expect_refused(std::string(7, '\0'), {"m.safetensors", "7 bytes", "8"});
}

TEST(SafetensorsFile, HeaderLengthMustFitTheFile) {
  expect_refused(length_prefix(3) + "{}", {"m.safetensors", "is 3", "only 2 bytes"});
  EXPECT_TRUE(read_header(MemoryFile("m", length_prefix(2) + "{}")).ok());
  expect_refused(length_prefix(0), {"nothing"});
}

TEST(SafetensorsFile, HeaderLengthHasALimitThatIsCheckedBeforeMemoryIsTaken) {
  expect_refused(length_prefix(kHeaderBytesMax + 1) + "{}", {"100000001", "at most 100000000"});
  expect_refused(length_prefix(UINT64_MAX) + "{}", {"18446744073709551615"});
  expect_refused(length_prefix(kHeaderBytesMax) + "{}", {"100000000", "only 2 bytes"});
}

TEST(SafetensorsFile, DeviceErrorsStayIoErrors) {
  auto file = std::make_unique<MemoryFile>("m.safetensors", image("{}", 0));
  const auto header = read_header(FaultyFile(std::move(file), {{9, 10}}));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.error().code(), ErrorCode::kIo);
}

TEST(SafetensorsHeader, ControlCharactersOfNamesDoNotReachTheTerminal) {
  const auto header = parse_header(R"({"\u001b[2J\n":{"dtype":"U8"}})", 0);
  ASSERT_FALSE(header.ok());
  for (const char c : header.error().message()) EXPECT_GE(c, ' ');
}

TEST(SafetensorsHeader, HundredThousandTensorsAreNotQuadratic) {
  // Quadratic key handling would take minutes here and run into the time limit of the suite.
  std::string json = "{";
  constexpr int kMany = 100'000;
  for (int i = 0; i < kMany; ++i) {
    json += formatted(
        R"({}"model.mlp.experts.{}.weight":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
        i == 0 ? "" : ",", i, i, i + 1);
  }
  json += "}";
  const auto header = parse_header(json, kMany);
  ASSERT_TRUE(header.ok()) << header.error().to_string();
  EXPECT_EQ(header->entries.size(), static_cast<size_t>(kMany));
}

class SafetensorsWriter : public ::testing::Test {
 protected:
  SafetensorsWriter() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "moeflux_writer_" + std::to_string(::getpid()) + info->name();
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/m.safetensors";
  }
  ~SafetensorsWriter() override { std::filesystem::remove_all(folder_); }

  void expect_refused(std::span<const WriteEntry> entries, std::string_view word) {
    const Status status = write_file(path_, entries, {});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message().find(word), std::string::npos) << status.error().message();
    EXPECT_NE(status.error().message().find(path_), std::string::npos);
    EXPECT_TRUE(list_files(folder_)->empty());
  }

  std::string folder_;
  std::string path_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64, std::byte{7});
};

TEST_F(SafetensorsWriter, WritesWhatTheReaderReads) {
  for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i);
  const std::span<const std::byte> data(bytes_);
  const std::vector<WriteEntry> entries = {
      {"odd", DType::kU8, {3}, data.first(3)},
      {"a \"quoted\"\\\n\xc3\xa9 name", DType::kBf16, {2, 3}, data.subspan(3, 12)},
      {"empty", DType::kF32, {0, 5}, {}},
      {"scalar", DType::kF32, {}, data.subspan(15, 4)},
  };
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"q\"", "\t\\"}};
  const Status status = write_file(path_, entries, metadata);
  ASSERT_TRUE(status.ok()) << status.error().to_string();

  const auto file = open_file(path_);
  ASSERT_TRUE(file.ok());
  const auto header = read_header(**file);
  ASSERT_TRUE(header.ok()) << header.error().to_string();
  EXPECT_EQ(header->data_offset % 8, 0u);
  EXPECT_EQ(header->metadata, metadata);
  ASSERT_EQ(header->entries.size(), entries.size());
  for (const WriteEntry& entry : entries) {
    const auto found = std::find_if(header->entries.begin(), header->entries.end(),
                                    [&](const HeaderEntry& e) { return e.name == entry.name; });
    ASSERT_NE(found, header->entries.end()) << entry.name;
    EXPECT_EQ(found->dtype, entry.dtype);
    EXPECT_EQ(found->shape, entry.shape);
    std::vector<std::byte> read(found->end - found->begin);
    ASSERT_TRUE((*file)->read_at(header->data_offset + found->begin, read).ok());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), entry.data.begin(), entry.data.end()));
  }
}

TEST_F(SafetensorsWriter, WritesAFileWithoutTensors) {
  ASSERT_TRUE(write_file(path_, {}, {}).ok());
  const auto file = open_file(path_);
  EXPECT_EQ((*file)->size_bytes() % 8, 0u);
  EXPECT_TRUE(read_header(**file)->entries.empty());
}

TEST_F(SafetensorsWriter, RefusesWhatTheReaderWouldRefuse) {
  const std::span<const std::byte> data(bytes_);
  expect_refused(std::vector<WriteEntry>{{"w", DType::kF32, {2}, data.first(7)}}, "expected 8");
  expect_refused(std::vector<WriteEntry>{{"w", DType::kU8, {-2}, data.first(2)}}, "-2");
  expect_refused(std::vector<WriteEntry>{{"w", DType::kU8, {1}, data.first(1)},
                                         {"w", DType::kU8, {1}, data.first(1)}},
                 "twice");
  expect_refused(std::vector<WriteEntry>{{"\xff", DType::kU8, {1}, data.first(1)}}, "JSON");
  expect_refused(std::vector<WriteEntry>{{"__metadata__", DType::kU8, {1}, data.first(1)}},
                 "__metadata__");
}

}  // namespace
}  // namespace moeflux::safetensors
