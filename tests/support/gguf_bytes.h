// GGUF files made by hand, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux::testing {

/// Little-endian bytes, appended in turn.
class GgufBytes {
 public:
  template <typename T>
  GgufBytes& number(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));  // tests run on little-endian machines
    text_.append(bytes, sizeof(T));
    return *this;
  }
  GgufBytes& string(std::string_view text) {
    number<uint64_t>(text.size());
    text_ += text;
    return *this;
  }
  GgufBytes& raw(std::string_view bytes) {
    text_ += bytes;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// The contents of a file. Fields that a test sets wrong stay wrong.
struct GgufImage {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> extents;  // innermost first, as in the file
    uint32_t type = 0;
    uint64_t offset = 0;
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> keys;  // name, type and value, complete
  std::vector<Tensor> tensors;
  int64_t more_keys = 0;     // that the header counts and the file does not have
  int64_t more_tensors = 0;  // the same
  uint64_t alignment = 32;
  std::string data;

  GgufImage& text(std::string_view name, std::string_view value) {
    keys.push_back(GgufBytes().string(name).number<uint32_t>(8).string(value).text());
    return *this;
  }
  GgufImage& u32(std::string_view name, uint32_t value) {
    keys.push_back(GgufBytes().string(name).number<uint32_t>(4).number(value).text());
    return *this;
  }
  GgufImage& f32(std::string_view name, float value) {
    keys.push_back(GgufBytes().string(name).number<uint32_t>(6).number(value).text());
    return *this;
  }
  GgufImage& key(std::string_view name, uint32_t type, std::string_view value) {
    keys.push_back(GgufBytes().string(name).number(type).raw(value).text());
    return *this;
  }
  GgufImage& tensor(std::string_view name, std::vector<uint64_t> extents, uint32_t type,
                    uint64_t offset) {
    tensors.push_back({std::string(name), std::move(extents), type, offset});
    return *this;
  }
  /// Zeros behind the infos, from the alignment's next multiple on.
  GgufImage& zeros(size_t bytes) {
    data.assign(bytes, '\0');
    return *this;
  }

  std::string bytes() const {
    GgufBytes all;
    all.raw(magic).number(version);
    all.number<uint64_t>(tensors.size() + static_cast<uint64_t>(more_tensors));
    all.number<uint64_t>(keys.size() + static_cast<uint64_t>(more_keys));
    for (const std::string& own : keys) all.raw(own);
    for (const Tensor& tensor : tensors) {
      all.string(tensor.name).number<uint32_t>(static_cast<uint32_t>(tensor.extents.size()));
      for (const uint64_t extent : tensor.extents) all.number(extent);
      all.number(tensor.type).number(tensor.offset);
    }
    std::string text = all.text();
    if (!data.empty()) text.resize((text.size() + alignment - 1) / alignment * alignment, '\0');
    return text + data;
  }
};

/// A sound file of an architecture that nobody has.
inline GgufImage small_gguf() {
  GgufImage image;
  image.text("general.architecture", "toy");
  return image;
}

}  // namespace moeflux::testing
