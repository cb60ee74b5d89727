// Ids and texts against those of the `tiktoken` library, written by
// tools/oracles/tiktoken_golden.py for a table as training makes it and for one whose ranks are in
// no order.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/formats/tiktoken.h"
#include "text/golden_test_util.h"

namespace moeflux {
namespace {

const std::string kTiktokenGolden = tokenizer_golden_folder();

class TiktokenGolden : public ::testing::TestWithParam<std::string> {
 protected:
  static Tokenizer load() {
    const std::string path = kTiktokenGolden + GetParam();
    Result<Tokenizer> tokenizer = parse_tiktoken(read_file(path + ".tiktoken.model"),
                                                 read_file(path + ".tokenizer_config.json"), path);
    EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().to_string());
    return std::move(tokenizer).value();
  }
  static Json golden() { return read_json(kTiktokenGolden + GetParam() + ".golden.json"); }

  static void expect_ids(const Tokenizer& tokenizer, const std::string& text,
                         const Json& expected) {
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.ok()) << ids.error().to_string();
    EXPECT_EQ(*ids, expected["ids"].get<std::vector<TokenId>>()) << text;
    const auto inert = tokenizer.encode(text, {.match_added_tokens = false});
    ASSERT_TRUE(inert.ok()) << inert.error().to_string();
    EXPECT_EQ(*inert, expected["inert"].get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(tokenizer.decode(*ids), tokenizer.decode(*inert)) << text;
  }
};

TEST_P(TiktokenGolden, EncodesAsTheLibraryDoes) {
  const Tokenizer tokenizer = load();
  const Json inputs = read_json(kTiktokenGolden + "inputs.json");
  const Json file = golden();
  ASSERT_EQ(inputs.size(), file["encodings"].size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    expect_ids(tokenizer, bytes_of(inputs[i]), file["encodings"][i]);
  }
  ASSERT_FALSE(file["extra"].empty());
  for (const Json& item : file["extra"]) {
    const auto text = item["text"].get<std::string>();
    expect_ids(tokenizer, text, item);
    EXPECT_EQ(tokenizer.decode(*tokenizer.encode(text)), text);
  }
}

TEST_P(TiktokenGolden, DecodesAnyIdsAsTheLibraryDoes) {
  const Tokenizer tokenizer = load();
  const Json decodings = golden()["decodings"];
  ASSERT_FALSE(decodings.empty());
  for (const Json& item : decodings) {
    EXPECT_EQ(tokenizer.decode(item["ids"].get<std::vector<TokenId>>()),
              item["text"].get<std::string>())
        << item["ids"];
  }
}

TEST_P(TiktokenGolden, EncodesLongRunsAsTheLibraryDoes) {
  const Tokenizer tokenizer = load();
  const Json runs = golden()["runs"];
  ASSERT_FALSE(runs.empty());
  for (const Json& run : runs) {
    std::string text;
    for (int i = 0; i < run["count"].get<int>(); ++i) text += run["unit"].get<std::string>();
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.ok()) << run << ids.error().to_string();
    EXPECT_EQ(ids->size(), run["ids"].get<size_t>()) << run;
    EXPECT_EQ(fnv1a(*ids), run["fnv1a"].get<std::string>()) << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, TiktokenGolden,
                         ::testing::Values("tiktoken-trained", "tiktoken-shuffled"),
                         [](const auto& instance) { return instance.param.substr(9); });

}  // namespace
}  // namespace moeflux
