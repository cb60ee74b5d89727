#include "checkpoint/gguf.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/io/memory_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::gguf {
namespace {

using testing::expect_error;
using testing::GgufBytes;
using testing::GgufImage;
using testing::small_gguf;
using testing::TempFolder;
using testing::write_bytes;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kF16 = 1;
constexpr uint32_t kArray = 9;

Result<Container> read(std::string_view bytes) {
  std::vector<std::unique_ptr<File>> files;
  files.push_back(std::make_unique<MemoryFile>("m.gguf", bytes));
  return Container::read(std::move(files));
}
Result<Container> read(const GgufImage& image) { return read(image.bytes()); }

TEST(Gguf, ReadsBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    GgufImage image = small_gguf();
    image.version = version;
    image.tensor("a", {4, 3, 2}, kF32, 0).tensor("b", {5}, kF16, 96).zeros(106);
    const auto found = read(image);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(found->architecture(), "toy");
    ASSERT_EQ(found->tensors().size(), 2u);
    const TensorInfo& a = found->tensors()[0];
    EXPECT_EQ(a.shape, Shape({2, 3, 4}));  // the innermost extent comes first in the file
    EXPECT_EQ(a.size_bytes, 96u);
    EXPECT_EQ(a.offset_bytes % 32, 0u);
    EXPECT_EQ(found->tensors()[1].offset_bytes, a.offset_bytes + 96);
    EXPECT_EQ(found->tensors()[1].size_bytes, 10u);
  }
}

TEST(Gguf, AcceptsWhatIsUnusualButSound) {
  GgufImage gap = small_gguf();  // out of order, with a gap, without padding at the end
  gap.tensor("b", {4}, kF32, 128).tensor("a", {1}, kF32, 0).tensor("scalar", {}, kF32, 32);
  EXPECT_TRUE(read(gap.zeros(144)).ok());
  GgufImage wide = small_gguf();
  wide.u32("general.alignment", 4096).tensor("a", {4}, kF32, 4096);
  wide.alignment = 4096;
  EXPECT_TRUE(read(wide.zeros(4096 + 16)).ok());
  EXPECT_TRUE(read(small_gguf().text("general.type", "model")).ok());  // and no tensor at all
}

TEST(Gguf, KeysHaveTypes) {
  GgufImage image = small_gguf();
  image.u32("count", 7).f32("eps", 0.5f).text("name", "x");
  image.key("minus", 5, GgufBytes().number<int32_t>(-3).text());
  image.key("huge", 10, GgufBytes().number<uint64_t>(UINT64_MAX).text());
  image.key("flag", 7, std::string(1, '\1'));
  image.key("list", kArray,
            GgufBytes()
                .number<uint32_t>(2)
                .number<uint64_t>(2)
                .number<uint16_t>(3)
                .number<uint16_t>(65535)
                .text());
  image.key(
      "words", kArray,
      GgufBytes().number<uint32_t>(8).number<uint64_t>(2).string("one").string("\xff").text());
  image.key("floats", kArray,
            GgufBytes().number<uint32_t>(6).number<uint64_t>(1).number(2.5f).text());
  const auto found = read(image);
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  const Keys& keys = found->keys();
  EXPECT_EQ(std::get<int64_t>(keys.find("count")->data), 7);
  EXPECT_EQ(std::get<int64_t>(keys.find("minus")->data), -3);
  EXPECT_EQ(std::get<uint64_t>(keys.find("huge")->data), UINT64_MAX);
  EXPECT_EQ(std::get<double>(keys.find("eps")->data), 0.5);
  EXPECT_TRUE(std::get<bool>(keys.find("flag")->data));
  EXPECT_EQ(*keys.text("name"), "x");
  EXPECT_EQ(*keys.ints("list"), (std::vector<int64_t>{3, 65535}));
  EXPECT_EQ(*keys.numbers("floats"), std::vector<double>{2.5});
  std::vector<std::string> words;
  EXPECT_TRUE(keys.for_each_text("words",
                                 [&](std::string_view word) {
                                   words.emplace_back(word);
                                   return Status();
                                 })
                  .ok());
  EXPECT_EQ(words, (std::vector<std::string>{"one", "\xff"}));
  expect_error(keys.ints("words"), ErrorCode::kCorruption, {"m.gguf", "words", "string"});
  expect_error(keys.text("count"), ErrorCode::kCorruption, {"count", "U32", "string"});
  expect_error(keys.text("absent"), ErrorCode::kNotFound, {"m.gguf", "absent"});
}

TEST(Gguf, LongTextsStayInTheFileUntilTheyAreRead) {
  const std::string text(100000, 'x');
  const auto found = read(small_gguf().text("tokenizer.chat_template", text));
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(std::holds_alternative<Stored>(found->keys().find("tokenizer.chat_template")->data));
  EXPECT_EQ(*found->keys().text("tokenizer.chat_template"), text);
}

TEST(Gguf, RefusesWhatIsNoGgufOfOurs) {
  expect_error(read("GGUF"), ErrorCode::kCorruption, {"m.gguf", "4 bytes", "24"});
  GgufImage image = small_gguf();
  image.magic = "GGML";
  expect_error(read(image), ErrorCode::kCorruption, {"m.gguf", "GGML", "GGUF"});
  for (const auto& [version, text] :
       {std::pair{1u, "version 1"}, {4u, "version 4"}, {0x03000000u, "big-endian"}}) {
    image = small_gguf();
    image.version = version;
    expect_error(read(image), ErrorCode::kUnsupported, {"m.gguf", text});
  }
  expect_error(read(small_gguf().text("general.type", "mmproj")), ErrorCode::kUnsupported,
               {"m.gguf", "general.type", "mmproj"});
  expect_error(read(GgufImage().text("general.name", "x")), ErrorCode::kCorruption,
               {"m.gguf", "general.architecture"});
}

TEST(Gguf, CountsAreBoundByTheFile) {
  for (const int64_t more : {int64_t{70000}, int64_t{3}, INT64_MAX - 1}) {
    GgufImage image = small_gguf();
    image.more_keys = more;
    expect_error(read(image), ErrorCode::kCorruption, {"m.gguf", "keys"});
    image = small_gguf();
    image.more_tensors = more;
    expect_error(read(image), ErrorCode::kCorruption, {"m.gguf", "tensors"});
  }
  GgufImage many = small_gguf();
  many.more_tensors = 1000001;
  many.alignment = 1;
  expect_error(read(many.zeros(24u * 1000001)), ErrorCode::kCorruption, {"1000001", "1000000"});
  const auto array_of = [](uint32_t type, uint64_t count) {
    return GgufBytes().number(type).number(count).text();
  };
  for (const uint64_t count : {uint64_t{5}, uint64_t{1} << 24, UINT64_MAX, UINT64_MAX / 4}) {
    for (const uint32_t type : {4u, 8u, 12u}) {
      expect_error(read(small_gguf().key("a", kArray, array_of(type, count))),
                   ErrorCode::kCorruption, {"m.gguf", "\"a\""});
    }
  }
  expect_error(read(small_gguf().key("a", kArray, array_of(9, 1))), ErrorCode::kUnsupported,
               {"\"a\"", "array of arrays"});
  expect_error(read(small_gguf().key("a", 13, "")), ErrorCode::kCorruption, {"type 13"});
  for (const uint64_t length : {uint64_t{100}, uint64_t{1} << 40, UINT64_MAX}) {
    expect_error(read(small_gguf().key("a", 8, GgufBytes().number(length).raw("abc").text())),
                 ErrorCode::kCorruption, {"\"a\"", "bytes"});
  }
}

TEST(Gguf, NamesAreVisibleAsciiAndUnique) {
  for (const std::string_view name : {"", "a b", "a\n", "\xc3\xa4", "\x1b[2J"}) {
    expect_error(read(small_gguf().u32(name, 1)), ErrorCode::kCorruption, {"key 1", "ASCII"});
    expect_error(read(small_gguf().tensor(name, {1}, kF32, 0).zeros(4)), ErrorCode::kCorruption,
                 {"tensor 0", "ASCII"});
  }
  const std::string long_name(64, 'a');
  expect_error(read(small_gguf().tensor(long_name, {1}, kF32, 0).zeros(4)), ErrorCode::kCorruption,
               {"name of a tensor", "64", "63"});
  expect_error(read(small_gguf().u32("a", 1).u32("a", 2)), ErrorCode::kCorruption,
               {"\"a\"", "twice"});
  expect_error(read(small_gguf().tensor("a", {1}, kF32, 0).tensor("a", {1}, kF32, 32).zeros(64)),
               ErrorCode::kCorruption, {"\"a\"", "twice"});
  expect_error(read(small_gguf().key("b", 7, "\2")), ErrorCode::kCorruption, {"\"b\"", "bool"});
}

TEST(Gguf, ShapesAndTypesAreChecked) {
  struct Case {
    std::vector<uint64_t> extents;
    uint32_t type;
    ErrorCode code;
    std::string_view text;
  };
  constexpr uint32_t kQ80 = 8;
  constexpr uint32_t kQ81 = 9;
  const Case cases[] = {
      {{1, 1, 1, 1, 1}, kF32, ErrorCode::kCorruption, "5 dimensions"},
      {{4, 0}, kF32, ErrorCode::kCorruption, "extent 0"},
      {{uint64_t{1} << 63}, kF32, ErrorCode::kCorruption, "extent"},
      {{uint64_t{1} << 32, uint64_t{1} << 32}, kF32, ErrorCode::kCorruption, "2^63"},
      {{uint64_t{1} << 62}, kF32, ErrorCode::kCorruption, "more than a file holds"},
      {{33}, kQ80, ErrorCode::kCorruption, "multiple of 32"},
      {{32}, kQ81, ErrorCode::kUnsupported, "Q8_1"},
      {{32}, 4, ErrorCode::kUnsupported, "Q4_2"},
      {{32}, 4711, ErrorCode::kUnsupported, "4711"},
  };
  for (const Case& c : cases) {
    expect_error(read(small_gguf().tensor("a", c.extents, c.type, 0).zeros(64)), c.code,
                 {"m.gguf", "\"a\"", c.text});
  }
}

TEST(Gguf, TensorsLieInTheFileAlignedAndApart) {
  expect_error(read(small_gguf().tensor("a", {1}, kF32, 4).zeros(64)), ErrorCode::kCorruption,
               {"\"a\"", "begins at 4", "32"});
  expect_error(read(small_gguf().tensor("a", {8}, kF32, 64).zeros(64)), ErrorCode::kCorruption,
               {"\"a\"", "64"});
  expect_error(read(small_gguf().tensor("a", {8}, kF32, UINT64_MAX - 31).zeros(64)),
               ErrorCode::kCorruption, {"\"a\""});
  expect_error(read(small_gguf().tensor("a", {17}, kF32, 0).zeros(64)), ErrorCode::kCorruption,
               {"68 bytes"});
  expect_error(read(small_gguf().tensor("a", {9}, kF32, 0).tensor("b", {1}, kF32, 32).zeros(64)),
               ErrorCode::kCorruption, {"\"a\"", "\"b\"", "overlap"});
  for (const uint32_t alignment : {0u, 4u, 48u, 1u << 21}) {
    expect_error(read(small_gguf().u32("general.alignment", alignment)), ErrorCode::kCorruption,
                 {"general.alignment", std::to_string(alignment)});
  }
  expect_error(read(small_gguf().text("general.alignment", "32")), ErrorCode::kCorruption,
               {"general.alignment", "string"});
}

// A fork writes blocks of 128 under the number of Q2_0's blocks of 64.
TEST(Gguf, BlocksUnderOneNumberAreToldByTheSize) {
  constexpr uint32_t kQ20 = 42;
  struct Case {
    std::vector<uint64_t> extents;
    uint64_t next;  // where another tensor begins; 0: there is none
    size_t data_bytes;
    std::string_view type;
    uint64_t size_bytes;
  };
  const Case cases[] = {
      {{128, 32}, 1152, 1156, "Q2_0", 1152},
      {{128, 32}, 1088, 1092, "Q2_0_128", 1088},
      {{128, 32}, 0, 1152, "Q2_0", 1152},
      {{128, 32}, 0, 1088, "Q2_0_128", 1088},
      {{256, 3, 7}, 0, 1512, "Q2_0", 1512},
      {{256, 3, 7}, 0, 1536, "Q2_0", 1512},
      {{256, 3, 7}, 0, 1428, "Q2_0_128", 1428},
      {{256, 3, 7}, 0, 1440, "Q2_0_128", 1428},
      {{128}, 0, 36, "Q2_0", 36},
      {{128}, 0, 34, "Q2_0_128", 34},
      {{64, 3}, 64, 68, "Q2_0", 54},
      {{64, 3}, 0, 54, "Q2_0", 54},
  };
  for (const Case& c : cases) {
    GgufImage image = small_gguf();
    if (c.next > 0) image.tensor("next", {1}, kF32, c.next);
    const auto found = read(image.tensor("a", c.extents, kQ20, 0).zeros(c.data_bytes));
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    const TensorInfo& tensor = found->tensors().back();
    EXPECT_EQ(tensor.type->name, c.type) << c.data_bytes;
    EXPECT_EQ(tensor.size_bytes, c.size_bytes) << c.data_bytes;
  }
}

TEST(Gguf, SizesThatFitNoBlocksOfTheNumberOrSeveralAreRefused) {
  constexpr uint32_t kQ20 = 42;
  const auto one = [](std::vector<uint64_t> extents, size_t bytes) {
    return read(small_gguf().tensor("a", std::move(extents), kQ20, 0).zeros(bytes));
  };
  expect_error(one({128}, 64), ErrorCode::kUnsupported,
               {"m.gguf", "\"a\"", "Q2_0", "64 bytes", "more than one", "36", "34"});
  for (const size_t bytes : {1089u, 1120u, 1151u, 1184u, 4096u}) {
    expect_error(one({128, 32}, bytes), ErrorCode::kUnsupported,
                 {"m.gguf", "\"a\"", "Q2_0", std::to_string(bytes), "none", "1152", "1088"});
  }
  expect_error(one({128, 32}, 1120), ErrorCode::kUnsupported, {"none", "or the file is cut short"});
  expect_error(one({64, 32}, 544), ErrorCode::kCorruption, {"\"a\"", "576", "cut"});
  expect_error(one({128, 32}, 1087), ErrorCode::kCorruption, {"\"a\"", "1087", "cut"});
  GgufImage cut = small_gguf();
  cut.tensor("a", {128, 32}, kQ20, 0).tensor("b", {1}, kF32, 1088);
  expect_error(read(cut.zeros(1040)), ErrorCode::kCorruption, {"\"a\"", "1088", "1040", "cut"});
  GgufImage two = small_gguf();
  two.tensor("a", {128}, kQ20, 0).tensor("b", {1}, kF32, 64);
  expect_error(read(two.zeros(68)), ErrorCode::kUnsupported, {"\"a\"", "more than one"});
  GgufImage gap = small_gguf();
  gap.tensor("a", {128, 32}, kQ20, 0).tensor("b", {1}, kF32, 1184);
  expect_error(read(gap.zeros(1188)), ErrorCode::kUnsupported, {"\"a\"", "1184", "none"});
  GgufImage overlap = small_gguf();
  overlap.tensor("a", {128, 32}, kQ20, 0).tensor("b", {1}, kF32, 1024);
  expect_error(read(overlap.zeros(1200)), ErrorCode::kCorruption, {"\"a\"", "\"b\"", "overlap"});
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string bytes = small_gguf()
                                .u32("toy.count", 1)
                                .text("toy.name", "name")
                                .tensor("a", {4, 2}, kF32, 0)
                                .zeros(32)
                                .bytes();
  ASSERT_TRUE(read(bytes).ok());
  for (size_t length = 0; length < bytes.size(); ++length) {
    expect_error(read(std::string_view(bytes).substr(0, length)), ErrorCode::kCorruption,
                 {"m.gguf"});
  }
}

// Parts of a split

struct Part {
  int64_t number = 0;
  int64_t count = 3;
  int32_t tensors = 2;
  std::string tensor;  // none when empty

  std::string bytes() const {
    GgufImage image = number == 0 ? small_gguf() : GgufImage();
    image.key("split.no", 2, GgufBytes().number(static_cast<uint16_t>(number)).text());
    image.key("split.count", 2, GgufBytes().number(static_cast<uint16_t>(count)).text());
    image.key("split.tensors.count", 5, GgufBytes().number(tensors).text());
    if (!tensor.empty()) image.tensor(tensor, {2}, kF32, 0).zeros(8);
    return image.bytes();
  }
};

std::string name_of(int number) { return "m-0000" + std::to_string(number) + "-of-00003.gguf"; }

TempFolder& write_parts(TempFolder& folder, std::vector<Part> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    write_bytes(folder / name_of(static_cast<int>(i) + 1), parts[i].bytes());
  }
  return folder;
}

TEST(GgufSplit, AnyPartOpensAll) {
  TempFolder folder;
  write_parts(folder, {{.number = 0}, {.number = 1, .tensor = "a"}, {.number = 2, .tensor = "b"}});
  for (const int part : {1, 2, 3}) {
    const auto found = Container::open(folder / name_of(part));
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(found->architecture(), "toy");  // the first part has the keys, and here no tensor
    ASSERT_EQ(found->tensors().size(), 2u);
    EXPECT_EQ(found->tensors()[1].name, "b");
    EXPECT_EQ(found->file(found->tensors()[1].file).path(), folder / name_of(3));
  }
}

TEST(GgufSplit, RefusesPartsThatDoNotBelongTogether) {
  const std::vector<Part> sound = {
      {.number = 0}, {.number = 1, .tensor = "a"}, {.number = 2, .tensor = "b"}};
  const auto expect = [&](std::vector<Part> parts, ErrorCode code,
                          std::initializer_list<std::string_view> texts) {
    TempFolder folder;
    write_parts(folder, std::move(parts));
    expect_error(Container::open(folder / name_of(1)), code, texts);
  };
  std::vector<Part> parts = sound;
  parts.pop_back();
  expect(parts, ErrorCode::kNotFound, {"part 3 of 3", name_of(3)});
  parts = sound;
  parts[1].number = 2;
  expect(parts, ErrorCode::kCorruption, {name_of(2), "split.no is 2", "expected 1"});
  parts = sound;
  parts[2].count = 4;
  expect(parts, ErrorCode::kCorruption, {name_of(3), "split.count is 4", "and 3"});
  TempFolder folder;  // a whole model under the name of a part
  write_bytes(write_parts(folder, sound) / name_of(2), small_gguf().bytes());
  expect_error(Container::open(folder / name_of(1)), ErrorCode::kCorruption,
               {name_of(2), "has no split.no, expected part 2 of 3"});
  parts = sound;
  parts[2].tensor = "a";
  expect(parts, ErrorCode::kCorruption, {name_of(3), "\"a\"", "twice"});
  parts = sound;
  parts[1].tensors = 3;
  expect(parts, ErrorCode::kCorruption, {name_of(2), "split.tensors.count is 3", "have 2"});
}

TEST(GgufSplit, APartNeedsAPartsName) {
  const TempFolder folder;
  write_bytes(folder / "blob", Part{.tensor = "a"}.bytes());
  expect_error(Container::open(folder / "blob"), ErrorCode::kCorruption,
               {"blob", "part 1 of 3", "name"});
}

TEST(GgufSplit, KeysOfTheFirstPartAreAFileOfTheirOwn) {
  const MemoryFile part("m", Part{.tensor = "a"}.bytes());
  const auto keys = copy_keys(part);
  ASSERT_TRUE(keys.ok()) << keys.error().to_string();
  const auto found = read(*keys);
  ASSERT_TRUE(found.ok()) << found.error().to_string();
  EXPECT_EQ(found->architecture(), "toy");
  EXPECT_TRUE(found->tensors().empty());
}

TEST(GgufSplit, NamesOfParts) {
  SplitName name;
  ASSERT_TRUE(parse_split_name("dir/x-00002-of-00010.gguf", name));
  EXPECT_EQ(name.number, 1);
  EXPECT_EQ(name.count, 10);
  EXPECT_EQ(name.path_of(9), "dir/x-00010-of-00010.gguf");
  for (const std::string_view other :
       {"x.gguf", "-00001-of-00001.gguf", "x-00000-of-00002.gguf", "x-00003-of-00002.gguf",
        "x-00001-of-99999.gguf", "x-0001-of-00002.gguf", "x-0000a-of-00002.gguf",
        "x-00001-of-00002.GGUF", "x_00001-of-00002.gguf", "sha256-0a1b"}) {
    EXPECT_FALSE(parse_split_name(other, name)) << other;
  }
}

TEST(Gguf, KnowsItsFilesByTheirFirstBytes) {
  const TempFolder folder;
  write_bytes(folder / "sha256-12", small_gguf().bytes());
  write_bytes(folder / "x.gguf", "GGU");
  EXPECT_TRUE(begins_with_magic(folder / "sha256-12"));
  EXPECT_FALSE(begins_with_magic(folder / "x.gguf"));
  EXPECT_FALSE(begins_with_magic(folder / "absent"));
  EXPECT_FALSE(begins_with_magic(folder.path()));
}

}  // namespace
}  // namespace moeflux::gguf
