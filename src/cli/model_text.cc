#include "cli/model_text.h"

#include "base/format.h"
#include "base/units.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr uint64_t kTokenizerBytesMax = kGiB;
constexpr uint64_t kTextBytesMax = kGiB;

}  // namespace

Result<Tokenizer> load_tokenizer(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  if (is_directory(directory) && !path_exists(path)) {
    return make_error(ErrorCode::kNotFound, "{}: the model folder has no tokenizer.json",
                      directory);
  }
  MF_ASSIGN_OR_RETURN(const std::string json, read_text_file(path, kTokenizerBytesMax));
  return Tokenizer::parse(json, path);
}

Result<std::string> read_text_input(const std::string& path) {
  return path == "-" ? read_standard_input(kTextBytesMax) : read_text_file(path, kTextBytesMax);
}

}  // namespace moeflux
