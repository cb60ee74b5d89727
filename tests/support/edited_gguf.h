// A GGUF file of the tree with other keys, other names, more tensors or another alignment.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {

class EditedGguf {
 public:
  /// `part`: of a split, from 0.
  explicit EditedGguf(const std::string& path, int32_t part = 0) {
    const std::string file = read_bytes(path);
    size_t at = 8;
    const auto tensors = take<uint64_t>(file, at);
    const auto keys = take<uint64_t>(file, at);
    std::memcpy(&image_.version, file.data() + 4, sizeof(image_.version));
    for (uint64_t i = 0; i < keys; ++i) {
      const size_t begin = at;
      skip_text(file, at);
      const auto type = take<uint32_t>(file, at);
      skip_value(file, at, type);
      image_.keys.push_back(file.substr(begin, at - begin));
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      GgufImage::Tensor tensor;
      const auto length = take<uint64_t>(file, at);
      tensor.name = file.substr(at, length);
      at += length;
      tensor.extents.resize(take<uint32_t>(file, at));
      for (uint64_t& extent : tensor.extents) extent = take<uint64_t>(file, at);
      tensor.type = take<uint32_t>(file, at);
      at += sizeof(uint64_t);
      image_.tensors.push_back(std::move(tensor));
    }
    const auto read = gguf::Container::open(path);
    EXPECT_TRUE(read.ok()) << path;
    if (!read.ok()) return;
    for (const gguf::TensorInfo& tensor : read->tensors()) {
      if (tensor.file != part) continue;
      data_.push_back(file.substr(tensor.offset_bytes, tensor.size_bytes));
    }
  }

  /// Keys and tensors in the order of the file.
  GgufImage& image() { return image_; }

  /// Takes a key away. Its name is complete.
  EditedGguf& drop(std::string_view key) {
    const std::string begin = GgufBytes().string(key).text();
    std::erase_if(image_.keys, [&](const std::string& own) { return own.starts_with(begin); });
    return *this;
  }
  /// Gives every tensor another name; an empty one takes it away.
  template <typename Rename>
  EditedGguf& rename(Rename rename) {
    for (size_t i = image_.tensors.size(); i-- > 0;) {
      image_.tensors[i].name = rename(image_.tensors[i].name);
      if (!image_.tensors[i].name.empty()) continue;
      image_.tensors.erase(image_.tensors.begin() + static_cast<std::ptrdiff_t>(i));
      data_.erase(data_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return *this;
  }
  /// Gives the architecture another name, in keys as well.
  EditedGguf& call_architecture(std::string_view old, std::string_view other) {
    const std::string prefix = std::string(old) + ".";
    for (std::string& key : image_.keys) {
      uint64_t length = 0;
      std::memcpy(&length, key.data(), sizeof(length));
      const std::string name = key.substr(sizeof(length), length);
      if (!name.starts_with(prefix)) continue;
      key = GgufBytes()
                .string(std::string(other) + "." + name.substr(prefix.size()))
                .raw(std::string_view(key).substr(sizeof(length) + length))
                .text();
    }
    drop("general.architecture");
    image_.text("general.architecture", other);
    return *this;
  }
  /// Adds a vector of 16 F32 zeros.
  EditedGguf& add_tensor(std::string_view name) {
    image_.tensor(name, {16}, 0, 0);
    data_.push_back(std::string(64, '\0'));
    return *this;
  }
  /// Gives the tensors of a block, but for those whose names have `without`, to another one as
  /// well.
  EditedGguf& copy_block(const std::string& from, const std::string& to, std::string_view without) {
    const size_t count = image_.tensors.size();
    for (size_t i = 0; i < count; ++i) {
      const GgufImage::Tensor tensor = image_.tensors[i];
      if (!tensor.name.starts_with(from) || tensor.name.find(without) != std::string::npos)
        continue;
      image_.tensor(to + tensor.name.substr(from.size()), tensor.extents, tensor.type, 0);
      data_.push_back(data_[i]);
    }
    return *this;
  }
  /// Adds an F32 tensor; extents are innermost first, as in the file.
  EditedGguf& add_floats(std::string_view name, std::vector<uint64_t> extents,
                         const std::vector<float>& numbers) {
    image_.tensor(name, std::move(extents), 0, 0);
    data_.emplace_back(reinterpret_cast<const char*>(numbers.data()),
                       numbers.size() * sizeof(float));
    return *this;
  }
  /// "blk.0.ffn_gate_exps.weight" of all experts becomes "blk.0.ffn_gate.3.weight" of each.
  EditedGguf& split_experts() {
    constexpr std::string_view kStack = "_exps.";
    for (size_t i = image_.tensors.size(); i-- > 0;) {
      const GgufImage::Tensor stack = image_.tensors[i];
      const size_t at = stack.name.find(kStack);
      if (at == std::string::npos || stack.extents.size() != 3) continue;
      const std::string bytes = data_[i];
      const auto position = static_cast<std::ptrdiff_t>(i);
      image_.tensors.erase(image_.tensors.begin() + position);
      data_.erase(data_.begin() + position);
      const size_t each = bytes.size() / stack.extents[2];
      for (uint64_t expert = 0; expert < stack.extents[2]; ++expert) {
        image_.tensor(stack.name.substr(0, at) + "." + std::to_string(expert) + "." +
                          stack.name.substr(at + kStack.size()),
                      {stack.extents[0], stack.extents[1]}, stack.type, 0);
        data_.push_back(bytes.substr(expert * each, each));
      }
    }
    return *this;
  }
  EditedGguf& align(uint32_t alignment) {
    drop("general.alignment");
    image_.u32("general.alignment", alignment);
    image_.alignment = alignment;
    return *this;
  }

  void write(const std::string& path) {
    std::string data;
    for (size_t i = 0; i < data_.size(); ++i) {
      image_.tensors[i].offset = data.size();
      data += data_[i];
      data.resize((data.size() + image_.alignment - 1) / image_.alignment * image_.alignment, '\0');
    }
    image_.data = std::move(data);
    write_bytes(path, image_.bytes());
  }

 private:
  template <typename T>
  static T take(const std::string& file, size_t& at) {
    T value = 0;
    std::memcpy(&value, file.data() + at, sizeof(T));
    at += sizeof(T);
    return value;
  }
  static void skip_text(const std::string& file, size_t& at) {
    const auto length = take<uint64_t>(file, at);
    at += length;
  }
  static void skip_value(const std::string& file, size_t& at, uint32_t type) {
    constexpr uint32_t kString = 8;
    constexpr uint32_t kArray = 9;
    constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == kString) return skip_text(file, at);
    if (type != kArray) {
      at += kBytes[type];
      return;
    }
    const auto element = take<uint32_t>(file, at);
    const auto count = take<uint64_t>(file, at);
    for (uint64_t i = 0; i < count; ++i) skip_value(file, at, element);
  }

  GgufImage image_;
  std::vector<std::string> data_;  // of each tensor
};

}  // namespace moeflux::testing
