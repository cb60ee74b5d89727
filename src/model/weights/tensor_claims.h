// TensorClaims: the names of a checkpoint's tensors and who took them. A tensor that somebody
// missed and a tensor that nobody took are both reported by name. Knows nothing of formats or
// devices.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/tensor_index.h"

namespace moeflux {

/// How a family's canonical names ("layers.0.mlp.gate") become names in a checkpoint.
struct NameScheme {
  /// Prepended to canonical names, first match wins: "language_model.model.", "model.", "".
  std::vector<std::string> prefixes;
  /// Parts of canonical names and what this family calls them. A part is some components in a row:
  /// "mlp" is one of "layers.0.mlp.gate", "lp.gate" is none. They apply in order.
  std::vector<std::pair<std::string, std::string>> renamed;
  /// Tensors whose name starts with one of these belong to parts we do not run, beside those that
  /// left_out_part() knows.
  std::vector<std::string> ignored_prefixes;
  /// Names of such parts in some files, after `renamed`: all apply to a name of which there is no
  /// tensor otherwise.
  std::vector<std::pair<std::string, std::string>> otherwise = {};
  /// Layers from this number on, a few at most, predict further tokens; below 0: none do.
  int64_t first_draft_layer = -1;
};

/// The beginning of names of a wrapper's text model ("model.language_model."); empty where the
/// checkpoint has only a text model, or names it like other parts.
std::string text_root(const TensorIndex& index, const NameScheme& scheme);

/// The part of a model that the tensor belongs to, if it is one that we do not run: towers of
/// pictures and sound, what joins them to the text, what speaks, and what predicts further tokens
/// ("model.visual", "mtp", "model.layers.61"). Any other part beside `root` is one too
/// ("model.merger"). Empty of a tensor of the text model, or an unknown one.
std::string left_out_part(std::string_view name, const NameScheme& scheme,
                          std::string_view root = {});
/// All such parts of a checkpoint, in order.
std::vector<std::string> left_out_parts(const TensorIndex& index, const NameScheme& scheme);

/// The canonical name with parts replaced, as NameScheme::renamed says.
std::string rename_parts(std::string_view name,
                         const std::vector<std::pair<std::string, std::string>>& renamed);

/// Failures are remembered and surface in finish(): who claims need not check each call.
class TensorClaims {
 public:
  /// `index` must outlive the claims.
  TensorClaims(const TensorIndex& index, NameScheme scheme)
      : index_(index), scheme_(std::move(scheme)) {}

  const TensorIndex& index() const { return index_; }
  const NameScheme& scheme() const { return scheme_; }

  /// The name in the checkpoint; that with the first prefix when there is none.
  std::string full_name(std::string_view name) const;
  /// True also of the first gate matrix of experts that have moved into a pack: its name tells the
  /// checkpoint's naming scheme.
  bool has(std::string_view name) const;

  /// Takes the tensor of this full name; null when it is missing.
  const TensorEntry* claim(const std::string& full_name);
  /// Takes a layer of the expert pack.
  void claim_packed(int32_t layer) { packed_claimed_.insert(layer); }
  void fail(Error error) { errors_.push_back(std::move(error)); }
  void fail_missing(const std::string& full_name) { missing_.push_back(full_name); }

  /// Fails with everything that was missing or wrong, else with every tensor that nobody took. The
  /// first twenty of each kind are named and the others counted.
  Status finish() const;

 private:
  Status failures() const;
  /// A bias of zeros beside a matrix in GPTQ's format, of a model without biases.
  bool adds_nothing(std::string_view name, const TensorEntry& entry) const;
  Status unclaimed() const;
  Status check_pack_is_used() const;

  const TensorIndex& index_;
  NameScheme scheme_;
  std::set<std::string, std::less<>> claimed_;
  std::set<int32_t> packed_claimed_;
  std::vector<Error> errors_;         // but for missing tensors
  std::vector<std::string> missing_;  // tensors
};

}  // namespace moeflux
