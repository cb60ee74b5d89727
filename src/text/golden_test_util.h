// Files of tests/golden/tokenizer and their spelling of inputs, for golden tests of tokenizers.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/json.h"

namespace moeflux {

inline std::string tokenizer_golden_folder() {
  return std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/tokenizer/";
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline Json read_json(const std::string& path) {
  Result<Json> json = parse_json(read_file(path), path);
  EXPECT_TRUE(json.ok()) << (json.ok() ? "" : json.error().to_string());
  return std::move(json).value();
}

/// The bytes an input stands for: "text", or "hex" where it is no UTF-8.
inline std::string bytes_of(const Json& input) {
  if (input.contains("text")) return input["text"].get<std::string>();
  const auto hex = input["hex"].get<std::string>();
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

/// FNV-1a over whole ids, as hex: what goldens hold of long inputs.
inline std::string fnv1a(const std::vector<TokenId>& ids) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const TokenId id : ids) value = (value ^ static_cast<uint32_t>(id)) * 0x100000001B3u;
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace moeflux
