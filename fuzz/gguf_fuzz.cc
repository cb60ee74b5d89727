// The bytes of a GGUF file, or of the parts of a split one after another: read() refuses in one
// line, or gives tensors that lie in their files and keys that can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/gguf.h"
#include "tests/support/io/memory_file.h"

namespace {

using moeflux::gguf::Container;

constexpr std::string_view kMagic = "GGUF";
constexpr size_t kPartsMax = 8;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Messages go to a terminal: one line, nothing that controls it.
void check_message(const moeflux::Error& error) {
  for (const char c : error.message()) require(static_cast<unsigned char>(c) >= ' ');
}

template <typename Outcome>
void check_outcome(const Outcome& outcome) {
  if (!outcome.ok()) check_message(outcome.error());
}

void check(const Container& model) {
  for (const auto& tensor : model.tensors()) {
    const uint64_t file_bytes = model.file(tensor.file).size_bytes();
    require(tensor.offset_bytes <= file_bytes);
    require(tensor.size_bytes <= file_bytes - tensor.offset_bytes);
    const auto elements = static_cast<uint64_t>(tensor.shape.num_elements());
    require(elements / static_cast<uint64_t>(tensor.type->block_elements) *
                static_cast<uint64_t>(tensor.type->block_bytes) ==
            tensor.size_bytes);
  }
  for (const auto& [name, value] : model.keys().values()) {
    check_outcome(model.keys().text(name));
    check_outcome(model.keys().ints(name));
    check_outcome(model.keys().numbers(name));
    check_outcome(
        model.keys().for_each_text(name, [](std::string_view) { return moeflux::Status(); }));
  }
}

void try_parts(std::string_view bytes, const std::vector<size_t>& begins) {
  std::vector<std::unique_ptr<moeflux::File>> files;
  for (size_t i = 0; i < begins.size(); ++i) {
    const size_t end = i + 1 < begins.size() ? begins[i + 1] : bytes.size();
    files.push_back(
        std::make_unique<moeflux::MemoryFile>("fuzz", bytes.substr(begins[i], end - begins[i])));
  }
  const auto model = Container::read(std::move(files));
  if (model.ok()) {
    check(*model);
  } else {
    check_message(model.error());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try_parts(bytes, {0});
  // A part begins wherever the magic is.
  std::vector<size_t> begins = {0};
  for (size_t at = bytes.find(kMagic, 1); at != std::string_view::npos && begins.size() < kPartsMax;
       at = bytes.find(kMagic, at + 1)) {
    begins.push_back(at);
  }
  if (begins.size() > 1) try_parts(bytes, begins);
  return 0;
}
