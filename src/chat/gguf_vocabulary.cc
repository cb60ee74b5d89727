#include "chat/gguf_vocabulary.h"

#include <string>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

constexpr uint64_t kTokensMax = uint64_t{1} << 24;

/// Reads keys one after another; the first failure stays.
class Reader {
 public:
  explicit Reader(const gguf::Keys& keys) : keys_(keys) {}

  std::string text(std::string_view name) { return read(name, &gguf::Keys::text); }

  std::vector<std::string> texts(std::string_view name) {
    std::vector<std::string> all;
    if (find(name) == nullptr) return all;
    const Status status = keys_.for_each_text(full(name), [&](std::string_view text) -> Status {
      all.emplace_back(text);
      if (all.size() <= kTokensMax) return {};
      return make_error(ErrorCode::kCorruption, "{} has more than {} elements", full(name),
                        kTokensMax);
    });
    if (!status.ok()) keep(status.error());
    return all;
  }

  std::vector<float> floats(std::string_view name) {
    const std::vector<double> numbers = read(name, &gguf::Keys::numbers);
    return {numbers.begin(), numbers.end()};
  }

  std::vector<int32_t> ints(std::string_view name) {
    std::vector<int32_t> all;
    for (const int64_t number : read(name, &gguf::Keys::ints)) {
      all.push_back(static_cast<int32_t>(number));
    }
    return all;
  }

  template <typename T>
  std::optional<T> one(std::string_view name, std::string_view expected) {
    const gguf::Value* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (const auto* found = std::get_if<T>(&value->data)) return *found;
    keep(make_error(ErrorCode::kCorruption, "key {} is of type {}, expected {}", full(name),
                    gguf::value_type_name(value->type), expected));
    return std::nullopt;
  }
  /// Writers say that there is none by leaving the key out, by -1 and by what -1 is as a u32.
  std::optional<int64_t> id(std::string_view name) {
    const std::optional<int64_t> stated = one<int64_t>(name, "a whole number");
    return stated && *stated >= 0 && *stated < int64_t{UINT32_MAX} ? stated : std::nullopt;
  }
  std::vector<int64_t> id_list(std::string_view name) { return read(name, &gguf::Keys::ints); }
  std::optional<bool> flag(std::string_view name) { return one<bool>(name, "a bool"); }

  /// An array of bytes.
  std::string bytes(std::string_view name) {
    std::string all;
    for (const int64_t byte : read(name, &gguf::Keys::ints)) all += static_cast<char>(byte);
    return all;
  }

  bool has(std::string_view name) const { return find(name) != nullptr; }

  const Status& status() const { return status_; }

 private:
  static std::string full(std::string_view name) { return formatted("tokenizer.ggml.{}", name); }
  const gguf::Value* find(std::string_view name) const { return keys_.find(full(name)); }
  void keep(const Error& error) {
    if (status_.ok()) status_ = error;
  }

  template <typename T>
  T read(std::string_view name, Result<T> (gguf::Keys::*get)(std::string_view) const) {
    if (find(name) == nullptr) return {};
    Result<T> found = (keys_.*get)(full(name));
    if (found.ok()) return std::move(found).value();
    keep(found.error());
    return {};
  }

  const gguf::Keys& keys_;
  Status status_;
};

}  // namespace

Result<StoredVocabulary> read_gguf_tokens(const gguf::Keys& keys) {
  Reader r(keys);
  StoredVocabulary stored;
  stored.tokens = r.texts("tokens");
  stored.token_type = r.ints("token_type");
  stored.bos_token_id = r.id("bos_token_id");
  stored.eos_token_id = r.id("eos_token_id");
  stored.eot_token_id = r.id("eot_token_id");
  stored.eom_token_id = r.id("eom_token_id");
  stored.unknown_token_id = r.id("unknown_token_id");
  stored.padding_token_id = r.id("padding_token_id");
  // Ollama's converter writes a list; llama.cpp ends a text where another file would begin.
  stored.other_ends = r.id_list("eos_token_ids");
  for (const char* name : {"fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"}) {
    if (const auto id = r.id(name)) stored.other_ends.push_back(*id);
  }
  MF_RETURN_IF_ERROR(r.status());
  return stored;
}

Result<StoredVocabulary> read_gguf_vocabulary(const gguf::Keys& keys) {
  MF_ASSIGN_OR_RETURN(StoredVocabulary stored, read_gguf_tokens(keys));
  Reader r(keys);
  stored.model = r.text("model");
  stored.pre = r.text("pre");
  const gguf::Value* architecture = keys.find("general.architecture");
  if (architecture != nullptr && std::holds_alternative<std::string>(architecture->data)) {
    stored.architecture = std::get<std::string>(architecture->data);
  }
  stored.lacks_merges = !r.has("merges");
  stored.scores = r.floats("scores");
  stored.merges = r.texts("merges");
  stored.add_bos_token = r.flag("add_bos_token");
  stored.add_eos_token = r.flag("add_eos_token");
  stored.add_space_prefix = r.flag("add_space_prefix");
  stored.remove_extra_whitespaces = r.flag("remove_extra_whitespaces");
  stored.precompiled_charsmap = r.bytes("precompiled_charsmap");
  MF_RETURN_IF_ERROR(r.status());
  return stored;
}

}  // namespace moeflux
