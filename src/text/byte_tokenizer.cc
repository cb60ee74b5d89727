#include "text/byte_tokenizer.h"

#include "base/json.h"
#include "text/encoding/byte_alphabet.h"

namespace moeflux {

std::string byte_tokenizer_json() {
  Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  Json json;
  json["version"] = "1.0";
  json["added_tokens"] = Json::array();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = byte_level;
  json["post_processor"] = nullptr;
  json["decoder"] = byte_level;
  json["model"]["type"] = "BPE";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    json["model"]["vocab"][spelling_of_bytes(std::string_view(&c, 1))] = byte;
  }
  json["model"]["merges"] = Json::array();
  return json.dump() + "\n";
}

}  // namespace moeflux
