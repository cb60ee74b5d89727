// GgufKeys: the keys of a GGUF file, asked for one after another. Getters never fail at the call:
// the first problem sticks and surfaces in status(), and keys that nobody asked for are remembered.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/gguf.h"

namespace moeflux {

/// Names of keys come without the architecture's in front: "block_count". Where a file has a key
/// under another converter's name, that one is read and named in messages.
class GgufKeys {
 public:
  /// `model` must outlive the keys.
  explicit GgufKeys(const gguf::Container& model);

  const std::string& architecture() const { return model_.architecture(); }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  bool has_array(std::string_view key) const;
  /// A whole number from 0 to 2^30. Also an array of one for each block, which must all be the
  /// same: zeros, which mean that a block has none, do not count.
  int64_t require_int(std::string_view key);
  int64_t int_or(std::string_view key, int64_t fallback);
  /// Floats and whole numbers.
  double require_number(std::string_view key);
  double number_or(std::string_view key, double fallback);
  bool bool_or(std::string_view key, bool fallback);
  std::string text_or(std::string_view key, std::string_view fallback);
  /// One number for each block, also where the file has one for all of them, or bools as 0 and 1.
  /// `longer`: the file may have more of them, of blocks that it does not hold.
  std::vector<int64_t> of_blocks(std::string_view key, bool longer = false);
  /// An array of at most `most` whole numbers below 2^63; none where it is
  /// absent.
  std::vector<int64_t> ints(std::string_view key, uint64_t most);
  /// One of each block, of floats.
  std::vector<double> numbers_of_blocks(std::string_view key);
  /// The key is known and does not matter here.
  void ignore(std::string_view key);
  /// Fails with kUnsupported unless the key is absent or this number.
  void expect_int(std::string_view key, int64_t supported);

  /// Blocks that the file counts; those of multi-token prediction are the last of them, which a
  /// file counts or shows by their tensors.
  int64_t num_blocks();
  /// The model's layers.
  int64_t num_layers();

  /// By the file's own name; null when absent.
  const gguf::TensorInfo* tensor(std::string_view name) const;
  /// True when some block has it: "attn_q.bias".
  bool any_block_has(std::string_view rest) const;
  /// The numbers of an F32 tensor of at most 65536 elements.
  std::vector<float> read_floats(std::string_view name);

  void fail(ErrorCode code, std::string message);
  const Status& status() const { return status_; }
  /// Names of the architecture's keys that nobody asked for.
  std::vector<std::string> unread() const;
  const gguf::Container& model() const { return model_; }
  /// "qwen3moe.block_count", or the other name that the file has it under.
  std::string full(std::string_view key) const;

 private:
  const gguf::Value* find(std::string_view key) const { return model_.keys().find(full(key)); }
  const gguf::Value* take(std::string_view key);
  void fail_type(std::string_view key, const gguf::Value& value, std::string_view expected);
  int64_t as_int(std::string_view key, const gguf::Value& value);
  int64_t in_range(std::string_view key, int64_t number);
  /// JSON has neither NaN nor infinity: they would come out as absent.
  double finite(std::string_view what, double number);
  int64_t predicting_blocks(int64_t blocks) const;

  const gguf::Container& model_;
  std::map<std::string_view, const gguf::TensorInfo*> tensors_;
  std::set<std::string, std::less<>> asked_;
  Status status_;
};

}  // namespace moeflux
