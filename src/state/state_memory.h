// Memory for what sequences remember: the device's own while there is some, then pinned memory of
// the host that the device reads over its bus, with the same bits. Pages of keys and values stay
// where they are: every token reads them all, so it does not matter which of them are far. Memory
// that several states share never changes its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/result.h"

namespace moeflux {

/// Thread-compatible, together with the states that use it. The device must outlive it.
class StateMemory {
 public:
  /// Without bounds: everything is the device's.
  explicit StateMemory(Device& device)
      : device_(device), shared_(std::make_shared<Shared>(device.num_parts())) {}

  enum class Use : uint8_t {
    kEveryStep,  // of a fixed size, or a window: written or read again by every step
    kPages,      // of all tokens
  };
  struct Bounds {
    uint64_t near_bytes = 0;  // of the device's own memory
    uint64_t kept_bytes = 0;  // of these, not for kPages
  };
  /// One for each part of the device, in order.
  void bound(std::vector<Bounds> bounds);
  /// The device has memory of its own, which states do not share with snapshots.
  bool is_bounded() const { return !bounds_.empty(); }

  /// Blocks that follow each other in one buffer.
  struct Blocks {
    std::shared_ptr<Buffer> buffer;
    size_t count = 0;
    bool is_far = false;  // in the host's memory, though the device has some of its own
  };
  /// Zeroed memory of a layer for up to `count` blocks of `bytes` each, at least one: fewer than
  /// asked for where the device's memory ends. Blocks have `heads` alike, which parts of the device
  /// may divide. Fails with kResourceExhausted.
  Result<Blocks> take(uint64_t bytes, size_t count, Use use, LayerId layer = {}, int64_t heads = 1);

  /// Zeroed memory of the device's own for one block, or null where there is no room for it.
  std::shared_ptr<Buffer> take_near(uint64_t bytes, Use use, LayerId layer = {});

  /// Memory for one block that was given back, with whatever was in it, or null. The system would
  /// otherwise map and clear pages each time, and a GPU allocate and free: on an H200 the states of
  /// Qwen3.5-35B take 3 ms, as long as three steps. Such memory stays within the bounds, beside
  /// that of near_bytes(), until other memory needs the room. Without bounds there is little of it.
  /// Never heads that parts of the device divide.
  std::shared_ptr<Buffer> take_spare(uint64_t bytes, Use use, LayerId layer = {},
                                     int64_t heads = 1);
  /// The device's own memory has room for that, perhaps once other memory's spares are gone.
  bool has_room(uint64_t bytes, Use use, size_t part) const {
    return bounds_.empty() || near_left(use, part) + shared_->taken[part].spare >= bytes;
  }
  /// The part of the device that has all of the layer's memory, or none where parts divide heads.
  std::optional<size_t> whole_part(LayerId layer, int64_t heads) const;
  /// At least so many zeros that nobody overwrites, on the layer's part of the device, or null
  /// where there is no room for them.
  std::shared_ptr<Buffer> zeros(uint64_t bytes, LayerId layer);

  /// Bytes of the device's own memory, at most; 0 without bounds.
  uint64_t near_bytes_max() const;
  /// Bytes that lie in either memory now.
  uint64_t near_bytes() const;
  uint64_t far_bytes() const;

 private:
  struct Taken {
    uint64_t near_kept = 0;
    uint64_t near_pages = 0;
    uint64_t far = 0;
    uint64_t spare = 0;  // near
  };

  /// Every buffer holds it too.
  struct Shared {
    explicit Shared(size_t parts) : taken(parts) {}
    std::vector<Taken> taken;          // by part of the device
    std::vector<uint64_t> near_bytes;  // that it may have, likewise; empty: no bounds
    std::map<std::pair<LayerId, uint64_t>, std::vector<std::unique_ptr<Buffer>>> spares;
    void keep(std::unique_ptr<Buffer> buffer, LayerId layer, size_t part);
    void drop_spares(const Device& device, size_t part);
  };

  /// The heads of memory that lie on a part of the device, of `of`.
  struct PartHeads {
    size_t part = 0;
    uint64_t heads = 1;
    uint64_t of = 1;
    uint64_t of_bytes(uint64_t bytes) const { return bytes / of * heads; }
  };
  /// Where a layer's memory lies and how it is given back.
  struct Place {
    LayerId layer{};
    std::vector<PartHeads> parts;
    bool is_spared = false;  // may be kept for the next block
  };
  std::vector<PartHeads> parts_of(LayerId layer, int64_t heads) const;

  uint64_t near_left(Use use, size_t part) const;
  static uint64_t Taken::*near_counter(Use use) {
    return use == Use::kPages ? &Taken::near_pages : &Taken::near_kept;
  }
  std::shared_ptr<Buffer> counted(std::unique_ptr<Buffer> memory, Place place,
                                  uint64_t Taken::*counter);

  Device& device_;
  std::vector<Bounds> bounds_;  // by part of the device; empty: none
  std::map<size_t, std::shared_ptr<Buffer>> zeros_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace moeflux
