// Config: a model's config.json, read with checks and with memory of what was read.
// Getters never fail at the call: the first problem sticks and surfaces in status(), so that a
// family reads its config as a plain list. A getter whose key is wrong returns the lower bound it
// was given.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

struct IntRange {
  int64_t min = 1;
  int64_t max = int64_t{1} << 24;
};

/// How a model will be used, where that decides how it is read.
struct ModelUse {
  /// The longest text that will be evaluated, 0: any; some models have other positions for short
  /// ones.
  int64_t context_length = 0;
  /// With the layer that predicts further tokens.
  bool draft_layer = false;
};

/// A key that no getter asked for.
struct UnreadKey {
  std::string name;  // with the path of the objects around it: "rope_scaling: beta"
  std::string key;
  Json value;
};

class Config {
 public:
  /// Parses config.json. Architecture keys are looked up in `text_config` when there is one
  /// (`llm_config` and `language_config` are its other names), then at the top level.
  static Result<Config> parse(std::string_view text);
  /// Wraps a nested object (rope_parameters) with the same getters; reports under `path`.
  Config(Json object, std::string path);

  /// The text model's: text_config.model_type, or the top level's.
  const std::string& model_type() const { return model_type_; }
  /// Where the file's own name is another of a family's: find_family().
  void set_model_type(std::string_view type) { model_type_ = type; }
  /// All that may name the family: model_type of the text model and of what is around it, then
  /// `architectures` of both.
  std::vector<std::string> model_types() const;
  std::vector<std::string> architectures() const;

  bool has(std::string_view key) const;       // present and not null
  bool mentions(std::string_view key) const;  // present, be it null
  int64_t require_int(std::string_view key, IntRange range = {});
  int64_t int_or(std::string_view key, int64_t fallback, IntRange range = {});
  double require_number(std::string_view key, double min, double max);
  double number_or(std::string_view key, double fallback, double min, double max);
  bool bool_or(std::string_view key, bool fallback);
  std::string string_or(std::string_view key, std::string_view fallback);
  std::vector<std::string> require_strings(std::string_view key);
  std::vector<int64_t> ints_or(std::string_view key, std::vector<int64_t> fallback);
  /// The nested object; an empty one when the key is absent. Its problems are merged by absorb().
  Config object(std::string_view key);
  void absorb(const Config& nested);

  const ModelUse& use() const { return use_; }
  void set_use(const ModelUse& use) { use_ = use; }
  /// Sets a key that is absent or null: for publishers who leave out what is their class's default.
  void assume(std::string_view key, Json value);

  /// Records a contradiction or something unsupported; the first one stays.
  void fail(ErrorCode code, std::string message);
  /// Fails with kUnsupported unless the key is absent or equals `supported`.
  void expect_string(std::string_view key, std::string_view supported);
  void expect_bool(std::string_view key, bool supported);
  /// Fails with kUnsupported unless the key is absent or null; `reason` says what it would mean.
  void expect_absent(std::string_view key, std::string_view reason);
  /// The same unless the key is absent or this number.
  void expect_number(std::string_view key, double supported);
  /// Fails with kInvalidArgument when the key is absent: families disagree about its default.
  void expect_present(std::string_view key);
  /// The key is known and does not matter to inference.
  void ignore(std::string_view key) { read_.insert(std::string(key)); }

  const Status& status() const { return status_; }
  /// Keys that are not null: in absorbed objects, then in text_config, then at the top level, there
  /// without harmless keys (model/config/config_keys.h).
  std::vector<UnreadKey> unread() const;
  /// The value wherever it is, or null.
  const Json* find(std::string_view key) const;

 private:
  const Json* take(std::string_view key);
  std::string name_of(std::string_view key) const;

  Json top_;
  Json text_;  // text_config, or null when the config is flat
  std::string path_;
  std::string model_type_;
  ModelUse use_;
  std::set<std::string, std::less<>> read_;
  std::map<std::string, UnreadKey, std::less<>> unread_nested_;  // by name
  Status status_;
};

}  // namespace moeflux
