// Named bytes that are kept, in memory or in a folder, within limits of bytes and number: cached
// prefixes, saved conversations and responses. Knows nothing of what they say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file_use.h"

namespace moeflux {

struct ShelfLimits {
  uint64_t bytes_max = 0;
  size_t count_max = SIZE_MAX;
  /// Decides for a new entry without room: it makes some, by removing what was used longest ago, or
  /// is not kept.
  bool makes_room = true;
};

/// How damage shows in what lies in a folder.
enum class Seal : uint8_t {
  /// JSON objects, whose files have a checksum and their name as first members. A file without
  /// them, which an older version or a person wrote, is taken as it is and sealed.
  kJson,
  /// Entries have checksums of their own, which their reader compares.
  kOwn,
};

struct ShelfOptions {
  ShelfLimits limits;
  /// Made unless it exists; its parent must. Empty: in memory, until the object ends.
  std::string directory = {};
  std::string suffix = ".json";  // of a file's name, behind the name of what is kept
  Seal seal = Seal::kJson;
  /// Other names stand for nothing.
  std::function<bool(std::string_view name)> is_name;
  /// Whether a file of such a name is what its name says; null: it is.
  std::function<bool(const std::string& name, const std::string& path)> is_kept = {};
  std::function<int64_t()> clock_ns = wall_clock_ns;
};

struct ShelfItem {
  std::string name;
  uint64_t size_bytes = 0;  // of its file, where there is one
  int64_t used_ns = 0;      // since 1970: when it was kept or used last
};

/// While it lasts nobody else has one of that name, here or in another process.
class ShelfClaim {
 public:
  virtual ~ShelfClaim() = default;
  /// False once it was revoked.
  virtual bool is_held() const { return true; }
};

/// Thread-safe; several processes may have one folder. Files there that are not ours are neither
/// counted nor touched. Others are their owner's alone, each written whole.
class Shelf {
 public:
  /// Removes what is too much, if something new may do so, and what writers that died have left.
  /// Fails with kIo and kInvalidArgument.
  static Result<std::unique_ptr<Shelf>> open(ShelfOptions options);
  virtual ~Shelf() = default;

  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  /// And uses it. Fails with kNotFound, kIo, or kCorruption for what is not as it was kept.
  virtual Result<Bytes> find(const std::string& name) = 0;
  /// In place of what was kept under that name and under those of `replaced`; durable when this
  /// returns, if there is a folder. Fails with kResourceExhausted where it has no room, or kIo;
  /// what was there before may then be there, but for what has made room.
  virtual Status keep(const std::string& name, std::vector<std::byte> bytes,
                      const std::vector<std::string>& replaced = {}) = 0;
  /// It is used just now, later than all else that was before.
  virtual void use(const std::string& name) = 0;
  /// Durable when this returns. Fails with kNotFound, or kIo.
  virtual Status erase(const std::string& name) = 0;
  /// By name.
  virtual Result<std::vector<ShelfItem>> list() = 0;
  /// Never waits: fails with kFailedPrecondition while there is another, or kIo. A process that
  /// dies has none any more. Must end before the shelf does.
  virtual Result<std::unique_ptr<ShelfClaim>> claim(const std::string& name) = 0;
  /// Takes a name from the process that has claimed it, which sees that in its claim. Fails with
  /// kFailedPrecondition where it is this one, kNotFound, or kIo.
  virtual Status revoke(const std::string& name) = 0;
  /// The file of that name, or the name, for people.
  virtual std::string place_of(const std::string& name) const = 0;

 protected:
  struct Others {
    uint64_t bytes = 0;
    size_t count = 0;
  };
  static Status check_room(const ShelfLimits& limits, uint64_t bytes, const Others& others);
  static Error unknown(const std::string& name);
  static Error claimed_error(const std::string& name);
};

/// The same for texts.
Result<std::string> find_text(Shelf& shelf, const std::string& name);
Status keep_text(Shelf& shelf, const std::string& name, std::string_view text);

}  // namespace moeflux
