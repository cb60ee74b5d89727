// The GGUF container, versions 2 and 3, in one file or in the parts of a split: typed keys, and
// where tensors lie. Knows no model: what keys and names mean is known above. Source: the format's
// own description in the ggml project (docs/gguf.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "io/file.h"
#include "quant/ggml_types.h"
#include "tensor/shape.h"

namespace moeflux::gguf {

/// As numbered in files.
enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
std::string_view value_type_name(ValueType type);

/// A long string or an array. It stays in the file until somebody reads it: a vocabulary takes 5 to
/// 20 MB.
struct Stored {
  ValueType element = ValueType::kString;
  uint64_t count = 0;  // of elements; 1 for a string
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
};

struct Value {
  ValueType type = ValueType::kU32;
  /// Whole numbers that fit are int64_t.
  std::variant<int64_t, uint64_t, double, bool, std::string, Stored> data;
};

/// The keys of a model. Reads what stays in the file, which must outlive them. Failures name the
/// file and the key.
class Keys {
 public:
  using Values = std::map<std::string, Value, std::less<>>;

  Keys() = default;
  Keys(const File& file, Values values) : file_(&file), values_(std::move(values)) {}

  const Values& values() const { return values_; }
  const Value* find(std::string_view key) const;  // null when absent

  // These fail with kNotFound when the key is absent, with kCorruption when it is of another type.

  Result<std::string> text(std::string_view key) const;
  /// An array of whole numbers, or one of bool as 0 and 1.
  Result<std::vector<int64_t>> ints(std::string_view key) const;
  /// An array of F32 or F64.
  Result<std::vector<double>> numbers(std::string_view key) const;
  /// Each element of an array of strings in turn, as bytes that need not be UTF-8. The first
  /// failure of `take` is returned.
  Status for_each_text(std::string_view key,
                       const std::function<Status(std::string_view)>& take) const;

 private:
  Result<const Value*> require(std::string_view key) const;
  Result<const Stored*> require_array(std::string_view key) const;
  Error wrong_type(std::string_view key, const Value& found, std::string_view expected) const;

  const File* file_ = nullptr;
  Values values_;
};

struct TensorInfo {
  std::string name;
  const GgmlType* type = nullptr;
  Shape shape;                // outermost first, as everywhere here: the file's order reversed
  int32_t file = 0;           // into Container::files()
  uint64_t offset_bytes = 0;  // absolute in the file
  uint64_t size_bytes = 0;
};

/// A model's files. Immutable.
class Container {
 public:
  /// Opens a file, and the other parts where its name says that it is one of a split. Everything is
  /// checked: counts before memory is taken, types, shapes, extents inside the file without
  /// overlap, no key or name twice, parts that agree. Fails with kNotFound for a missing part,
  /// kCorruption or kUnsupported in one line that names the file, what was found and what was
  /// expected.
  static Result<Container> open(const std::string& path);
  /// One file or all parts of a split in order, which may lie anywhere.
  static Result<Container> read(std::vector<std::unique_ptr<File>> files);

  const std::string& architecture() const { return architecture_; }
  const Keys& keys() const { return keys_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const File& file(int32_t i) const { return *files_[static_cast<size_t>(i)]; }
  /// Leaves the container without its files and thereby the keys without theirs.
  std::vector<std::unique_ptr<File>> take_files() { return std::move(files_); }

 private:
  std::string architecture_;
  Keys keys_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::unique_ptr<File>> files_;
};

/// The bytes of a file that has the keys of `file` and no tensors.
Result<std::string> copy_keys(const File& file);

/// True of a file whose first four bytes are GGUF's. False also where it cannot be read.
bool begins_with_magic(const std::string& path);

/// A name NAME-00001-of-00003.gguf.
struct SplitName {
  std::string stem;    // with the folder
  int32_t number = 0;  // from 0
  int32_t count = 0;

  std::string path_of(int32_t part) const;
};
/// False for names of another shape.
bool parse_split_name(std::string_view path, SplitName& name);

}  // namespace moeflux::gguf
