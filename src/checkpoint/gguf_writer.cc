// Writing GGUF files. The header goes through the reader before a byte is written, so that what we
// write is what we would accept.
#include "checkpoint/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/units.h"
#include "checkpoint/gguf.h"
#include "io/file.h"

namespace moeflux::gguf {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;  // that of files which do not say another

/// Little-endian whatever the host.
template <typename T>
void append(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

void append_text(std::string& bytes, std::string_view text) {
  append<uint64_t>(bytes, text.size());
  bytes += text;
}

/// A file that has a header in memory and nothing behind it, however long it says it is.
class HeaderFile final : public File {
 public:
  HeaderFile(std::string_view header, uint64_t size_bytes)
      : header_(header), size_bytes_(size_bytes) {}
  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return size_bytes_; }
  Status read_at(uint64_t offset, std::span<std::byte> into) const override {
    std::ranges::fill(into, std::byte{0});
    if (offset >= header_.size()) return {};
    std::memcpy(into.data(), header_.data() + offset,
                std::min<uint64_t>(into.size(), header_.size() - offset));
    return {};
  }

 private:
  const std::string path_ = "the header";
  std::string_view header_;
  uint64_t size_bytes_;
};

}  // namespace

void KeyWriter::begin(std::string_view key, uint32_t type) {
  ++count_;
  append_text(bytes_, key);
  append(bytes_, type);
}

void KeyWriter::text(std::string_view key, std::string_view value) {
  begin(key, static_cast<uint32_t>(ValueType::kString));
  append_text(bytes_, value);
}

void KeyWriter::u32(std::string_view key, int64_t value) {
  MF_CHECK(std::in_range<uint32_t>(value));
  begin(key, static_cast<uint32_t>(ValueType::kU32));
  append(bytes_, static_cast<uint32_t>(value));
}

void KeyWriter::f32(std::string_view key, double value) {
  begin(key, static_cast<uint32_t>(ValueType::kF32));
  append(bytes_, std::bit_cast<uint32_t>(static_cast<float>(value)));
}

void KeyWriter::flag(std::string_view key, bool value) {
  begin(key, static_cast<uint32_t>(ValueType::kBool));
  append<uint8_t>(bytes_, value ? 1 : 0);
}

void KeyWriter::ints(std::string_view key, std::span<const int64_t> values) {
  begin(key, static_cast<uint32_t>(ValueType::kArray));
  append(bytes_, static_cast<uint32_t>(ValueType::kI32));
  append<uint64_t>(bytes_, values.size());
  for (const int64_t value : values) {
    MF_CHECK(std::in_range<int32_t>(value));
    append(bytes_, static_cast<uint32_t>(value));
  }
}

uint64_t PlannedTensor::size_bytes() const {
  MF_CHECK(type->is_readable() && shape.back() % type->block_elements == 0);
  return static_cast<uint64_t>(shape.num_elements() / shape.back()) *
         static_cast<uint64_t>(type->row_bytes(shape.back()));
}

Result<Layout> lay_out_file(const KeyWriter& keys, std::span<const PlannedTensor> tensors) {
  Layout layout;
  std::string& header = layout.header;
  header = "GGUF";
  append(header, kVersion);
  append<uint64_t>(header, tensors.size());
  append(header, keys.count());
  header += keys.bytes();
  for (const PlannedTensor& tensor : tensors) {
    append_text(header, tensor.name);
    append(header, static_cast<uint32_t>(tensor.shape.rank()));
    for (int i = tensor.shape.rank() - 1; i >= 0; --i) {
      append(header, static_cast<uint64_t>(tensor.shape[i]));
    }
    append(header, tensor.type->id);
    append(header, layout.data_bytes);
    layout.begins.push_back(layout.data_bytes);
    layout.data_bytes += round_up(tensor.size_bytes(), kAlignment);
  }
  header.resize(round_up(header.size(), kAlignment), '\0');
  std::vector<std::unique_ptr<File>> files;
  files.push_back(std::make_unique<HeaderFile>(header, header.size() + layout.data_bytes));
  const Result<Container> read = Container::read(std::move(files));
  if (!read.ok()) return Error(ErrorCode::kInvalidArgument, read.error().message());
  return layout;
}

}  // namespace moeflux::gguf
