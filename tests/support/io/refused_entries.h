// RefusedEntries: lets io_uring_enter fail for a test, from a given entry on, as often as it says.
#pragma once

#include "io/uring/uring_reader.h"

namespace moeflux {

class RefusedEntries final : public UringEntryFilter {
 public:
  static constexpr int kForever = -1;

  /// The next `allowed` entries are made, `count` after them are refused, then all are made.
  void refuse_after(int allowed, int count, int number) {
    allowed_ = allowed;
    count_ = count;
    number_ = number;
    refused_ = 0;
  }
  int refuse() override {
    if (allowed_ > 0) {
      --allowed_;
      return 0;
    }
    if (count_ == 0) return 0;
    if (count_ > 0) --count_;
    ++refused_;
    return number_;
  }
  int refused() const { return refused_; }

 private:
  int allowed_ = 0;
  int count_ = 0;
  int number_ = 0;
  int refused_ = 0;
};

}  // namespace moeflux
