// Texts that are kept by name, in memory or in a folder, within limits of bytes and number. Knows
// nothing of what they say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux::serve {

struct KeptLimits {
  uint64_t bytes_max = 0;
  size_t count_max = 0;
  /// What a new text does that has no room: makes some, by removing those used longest ago, or is
  /// not kept.
  bool makes_room = true;
};

struct KeptText {
  std::string name;
  uint64_t size_bytes = 0;
  int64_t used_ns = 0;  // since 1970: when it was kept or found last
};

/// Thread-safe; several processes may have one folder. A name that is_text_name() refuses stands
/// for nothing, and must not be kept.
class KeptTexts {
 public:
  virtual ~KeptTexts() = default;

  /// Fails with kNotFound, or kIo.
  virtual Result<std::string> find(const std::string& name) = 0;
  /// In place of an older text of that name; durable when this returns, if there is a folder. Fails
  /// with kResourceExhausted where it has no room, or kIo; an older text may then be there.
  virtual Status keep(const std::string& name, std::string_view text) = 0;
  /// Fails with kNotFound, or kIo.
  virtual Status erase(const std::string& name) = 0;
  /// By name.
  virtual Result<std::vector<KeptText>> list() = 0;
  /// A text's file, or its name, for people.
  virtual std::string place_of(const std::string& name) const = 0;
};

/// Up to 64 letters, digits, '_' and '-', the first of them a letter or digit.
bool is_text_name(std::string_view name);

/// Until the object ends.
std::unique_ptr<KeptTexts> keep_texts_in_memory(const KeptLimits& limits);

/// In files NAME.json for their owner alone, each written whole. Makes the folder unless it exists;
/// its parent must. Other files there are neither counted nor touched. A text is read up to the
/// limit of bytes. Fails with kIo and kInvalidArgument.
Result<std::unique_ptr<KeptTexts>> keep_texts_in_folder(const std::string& directory,
                                                        const KeptLimits& limits);

}  // namespace moeflux::serve
