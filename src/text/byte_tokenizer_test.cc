#include "text/byte_tokenizer.h"

#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace moeflux {
namespace {

TEST(ByteTokenizer, TokensAreTheBytesOfTheText) {
  const auto tokenizer = Tokenizer::parse(byte_tokenizer_json(), "bytes");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  const std::string text = "Two words,\n\ttabs and \xc3\xa4\xe2\x82\xac 12!";
  const auto tokens = tokenizer->encode(text);
  ASSERT_TRUE(tokens.ok());
  ASSERT_EQ(tokens->size(), text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ((*tokens)[i], static_cast<unsigned char>(text[i])) << i;
  }
}

}  // namespace
}  // namespace moeflux
