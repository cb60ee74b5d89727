// ModelSource: what a model is made of, wherever it lies. Gives texts and tensors as they are
// stored; what they mean is known above.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/tensor_index.h"
#include "model/config/config.h"

namespace moeflux {

/// A tokenizer as it is stored.
struct TokenizerText {
  enum class Kind : uint8_t {
    kJson,           // `text` is a tokenizer.json
    kTiktoken,       // `text` is a tiktoken.model, `config` its tokenizer_config.json
    kSentencePiece,  // `text` is a tokenizer.model, `config` a tokenizer_config.json or empty
    kGguf,           // a vocabulary in the keys of `gguf`
  };
  Kind kind = Kind::kJson;
  std::string text;
  std::string config;
  std::string name;                             // of the file that `text` is from, for messages
  std::shared_ptr<const gguf::Container> gguf;  // where it lies in one
};

/// Jinja texts that turn messages into a prompt.
struct StoredTemplates {
  std::optional<std::string> text;           // the one without a name
  std::map<std::string, std::string> named;  // "tool_use", "rag"; also "default"
  /// Where each lies, for messages: "FOLDER/chat_template.jinja"; that of `text` has an empty name.
  std::map<std::string, std::string> places;
};

/// The pooling of texts as the keys of a GGUF file have it.
struct StoredPooling {
  std::optional<int64_t> type;      // llama.cpp's number; none: the model has no such key
  std::string key;                  // its name, for messages
  std::vector<std::string> labels;  // of the rows of a head of scores
};

/// Stateless: each call reads. Failures name the file.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  /// The path it was opened with.
  virtual const std::string& path() const = 0;
  /// The text of config.json, or what says the same.
  virtual Result<std::string> config() const = 0;
  virtual Result<TensorIndex> tensors(const ModelUse& use = {}) const = 0;
  /// False when there is no weight at all. Also true for an index without its shards: then they are
  /// missing, not absent on purpose.
  virtual Result<bool> holds_tensors() const = 0;
  /// Fails with kNotFound when there is none.
  virtual Result<TokenizerText> tokenizer() const = 0;
  /// The text of generation_config.json; nullopt when there is none.
  virtual Result<std::optional<std::string>> generation_config() const = 0;
  /// Chat templates, from the first place that has one: chat_template.jinja with what is in
  /// additional_chat_templates/, tokenizer_config.json (a text, or a list of names and texts),
  /// chat_template.json; or the keys of GGUF.
  virtual Result<StoredTemplates> chat_templates() const = 0;
  /// The texts of tokenizer_config.json and special_tokens_map.json, which name bos_token and the
  /// like; empty objects where a file is absent.
  virtual Result<std::vector<std::string>> special_token_maps() const = 0;
  /// A GGUF file that has all keys and no tensor; nullopt where the model has no keys.
  virtual Result<std::optional<std::string>> keys_without_tensors() const = 0;
  /// The text of a file beside config.json, also in a folder below: "1_Pooling/config.json";
  /// nullopt when there is none, as in GGUF.
  virtual Result<std::optional<std::string>> beside(std::string_view name) const = 0;
  virtual Result<StoredPooling> pooling() const = 0;
  /// The folder or file that find_model_place() found at path().
  virtual const std::string& place() const = 0;
  /// A message about config() with the names that file and keys have where it is from.
  virtual std::string in_its_names(const std::string& message) const { return message; }
  /// One line about tensors of parts that are not run; empty where there are none.
  virtual Result<std::string> left_alone(const ModelUse& /*use*/) const { return std::string(); }
};

/// A file of keys without tensors in a folder that was packed from GGUF: what tokenizer.json,
/// generation_config.json and chat_template.jinja say elsewhere.
inline constexpr std::string_view kGgufKeysName = "keys.gguf";

/// A folder of Hugging Face or MLX files, or what find_gguf() finds, where find_model_place() says
/// that it lies. Fails as they do, and with kFailedPrecondition when a packing into the folder has
/// not finished.
Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path);

}  // namespace moeflux
