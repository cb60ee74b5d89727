// How checkpoints spell a module in each storage format. The tensors that are there decide which
// format a module has, and config.json must not say otherwise.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/config/quant_config.h"
#include "model/weights/tensor_claims.h"
#include "model/weights/weight_origin.h"
#include "quant/format.h"

namespace moeflux {

/// The tensors of one module by what they are called behind its name.
class ModuleTensors {
 public:
  /// `weight_name` is ".weight", or empty for modules that are tensors themselves: the parts of
  /// those are called M_scales, of others M.scales. The index must outlive this.
  ModuleTensors(const TensorIndex& index, std::string module, std::string_view weight_name)
      : index_(index), module_(std::move(module)), weight_name_(weight_name) {}

  const std::string& module() const { return module_; }
  /// The complete name of a part: "weight_scale"; "weight" is that of the module's own tensor.
  std::string name_of(std::string_view part) const;
  /// Null when there is none.
  const TensorEntry* find(std::string_view part) const { return index_.find(name_of(part)); }
  StoredPart part(std::string_view part) const { return {name_of(part), find(part)}; }
  /// The whole numbers of a small tensor of I32 or I64.
  Result<std::vector<int64_t>> read_ints(std::string_view part) const;

  /// A failure that names the module and shows the tensors `parts`.
  Error mismatch(ErrorCode code, std::initializer_list<std::string_view> parts,
                 std::string_view expected) const;

 private:
  const TensorIndex& index_;
  std::string module_;
  std::string_view weight_name_;
};

/// The spelling of some formats. Every file in stored_formats/ defines
/// `stored_<file>::spelling`; the list of them is generated, so that adding a spelling is adding a
/// file.
struct StoredFormat {
  /// The part that holds the codes, as ModuleTensors names it: says where to look for modules.
  std::string_view codes;
  /// True when the module's tensors are this spelling's.
  bool (*is_spelled)(const ModuleTensors& tensors);
  /// The format and the parts of a module [leading..., rows, cols] that is spelled so. Fails when
  /// its tensors do not make one, or config.json says otherwise.
  Result<StoredModule> (*read)(const ModuleTensors& tensors, const QuantConfig& quant,
                               const Shape& shape);
};

std::span<const StoredFormat* const> stored_formats();

/// The canonical name of the tensor that holds the codes of canonical `module`, in the spelling of
/// whatever format: the first that claims know, or nullopt. `weight_name` is find_module()'s.
std::optional<std::string> find_codes(const TensorClaims& claims, const std::string& module,
                                      std::string_view weight_name);
/// The complete name of canonical `module`.
std::string full_module_name(const TensorClaims& claims, const std::string& module,
                             std::string_view weight_name);

/// Whether a matrix has one number of that part, however many rows it has.
bool is_one_of_matrix(const QuantFormat& format, PartRole role);

/// `shape` with its last two extents replaced.
Shape with_matrix(const Shape& shape, int64_t rows, int64_t cols);

/// The format and the tensors of a module [leading..., rows, cols]. `weight_name` follows the
/// module's name where the weight is plain or affine. Failures go to the claims. Nothing is
/// claimed.
std::optional<StoredModule> find_module(TensorClaims& claims, const QuantConfig& quant,
                                        const std::string& module, std::string_view weight_name,
                                        const Shape& shape);

/// Whether `part`, I32 [cols], puts columns into other groups than the format's, which are as many
/// and lie in a row. False where there is none, or all of it is -1. Fails when it is no map into
/// groups.
Result<bool> maps_columns(const ModuleTensors& tensors, std::string_view part,
                          const QuantFormat& format, int64_t cols);

/// Fails when MLX's section of config.json says another format of the module.
Status check_stated(const QuantConfig& quant, const StoredModule& module);

/// Fails when config.json says that routed experts are of other numbers than this module of them.
Status check_experts(const QuantConfig& quant, const StoredModule& module);

void claim_parts(TensorClaims& claims, const StoredModule& module);

Parts<std::string> affine_names(const std::string& module, std::string_view weight_name);

}  // namespace moeflux
