// The keys and names of a GGUF file: they make a config.json that its family reads or refuses, and
// a list of tensors that lie in the file; what is refused is refused in one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "model/family/family.h"
#include "model/gguf/gguf_model.h"
#include "tests/support/io/memory_file.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// Messages go to a terminal: one line, nothing that controls it.
template <typename Outcome>
bool check_outcome(const Outcome& outcome) {
  if (outcome.ok()) return true;
  for (const char c : outcome.error().message()) require(static_cast<unsigned char>(c) >= ' ');
  return false;
}

void read_spec(const std::string& text) {
  auto config = moeflux::Config::parse(text);
  require(config.ok());  // of our own making
  const auto family = moeflux::find_family(config->model_type());
  require(family.ok());
  const auto spec = (*family)->read_spec(*config);
  if (check_outcome(spec)) require(spec->num_layers() > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::unique_ptr<moeflux::File>> files;
  files.push_back(
      std::make_unique<moeflux::MemoryFile>("fuzz", std::as_bytes(std::span(data, size))));
  auto model = moeflux::gguf::Container::read(std::move(files));
  if (!check_outcome(model)) return 0;
  const auto config = moeflux::gguf_config(*model);
  if (check_outcome(config)) read_spec(*config);
  const auto tensors = moeflux::gguf_tensors(std::move(model).value());
  if (!check_outcome(tensors)) return 0;
  for (const auto& [name, entry] : tensors->entries()) {
    require(entry.offset_bytes <= size && entry.size_bytes <= size - entry.offset_bytes);
  }
  return 0;
}
