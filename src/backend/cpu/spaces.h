// Memory that operations keep for their next calls: it only grows, so that after the first steps
// none allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace moeflux::cpu {

/// Grows a workspace to at least `size` elements and returns it.
template <typename T>
T* workspace(std::vector<T>& storage, int64_t size) {
  if (storage.size() < static_cast<size_t>(size)) storage.resize(static_cast<size_t>(size));
  return storage.data();
}

/// Grow-only memory on a cache line border: vector loads that straddle lines cost a third of the
/// speed of a matrix product.
class AlignedSpace {
 public:
  /// At least `bytes`; what was there before is lost when it grows.
  std::byte* get(size_t bytes) {
    constexpr size_t kLine = 64;
    if (storage_.size() < bytes + kLine) storage_.resize(bytes + kLine);
    const auto past = reinterpret_cast<uintptr_t>(storage_.data()) % kLine;
    data_ = storage_.data() + (kLine - past) % kLine;
    return data_;
  }
  float* floats(int64_t count) {
    return reinterpret_cast<float*>(get(static_cast<size_t>(count) * sizeof(float)));
  }
  /// The result of the last get().
  std::byte* data() const { return data_; }

 private:
  std::vector<std::byte> storage_;
  std::byte* data_ = nullptr;
};

/// Workspaces by their types: a file of ops has one of its own, which nobody else needs to know.
class Spaces {
 public:
  /// The one of a type, made of `args` at the first call.
  template <typename T, typename... Args>
  T& of(Args&&... args) {
    for (const Space& space : spaces_) {
      if (space.type == &kType<T>) return *static_cast<T*>(space.space.get());
    }
    const auto made = std::make_shared<T>(std::forward<Args>(args)...);
    spaces_.push_back({&kType<T>, made});
    return *made;
  }
  /// Room that one operation at a time uses.
  float* floats(int64_t count) { return floats_.floats(count); }

 private:
  template <typename T>
  static constexpr char kType = 0;  // its address stands for the type
  struct Space {
    const char* type;
    std::shared_ptr<void> space;
  };

  std::vector<Space> spaces_;
  AlignedSpace floats_;
};

}  // namespace moeflux::cpu
