// Records work on several devices, each operation on that which has its operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "backend/host_buffer.h"
#include "backend/ops/attention.h"
#include "backend/ops/copy.h"
#include "backend/ops/expert_ffn.h"
#include "backend/split/split_buffer.h"

namespace moeflux {

class SplitEncoder : public Encoder {
 public:
  /// An encoder for each device; the copies of `scratch` are theirs. Operations that are made of
  /// others take theirs behind what is taken here.
  SplitEncoder(std::vector<std::unique_ptr<Encoder>> encoders,
               std::unique_ptr<SplitBuffer> scratch);

  Tensor scratch(const Shape& shape, DType dtype) override;
  size_t scratch_mark() const override { return scratch_.mark(); }
  void scratch_release(size_t mark) override { scratch_.release(mark); }
  void keep_alive(std::unique_ptr<Retained> resource) override;
  /// Writes to all copies of memory that has some, but to one of scratch: that in use.
  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;
  void run_on_host(int64_t count, const std::function<void(int64_t)>& fn) override;
  Encoder& on_part(size_t number) override { return *views_[number]; }
  void experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                    const ExpertMemory& memory) override;
  void experts_moved(const std::vector<ExpertWeights>& experts,
                     std::span<const size_t> which) override;
  EventId submit() override;
  /// Waits for all that has been submitted, later work too.
  Status wait(EventId event) override;

 protected:
  void execute(const ops::AnyOp& any) override;

 private:
  class PartView;
  /// A device's own heads of sequences' pages.
  struct HeadPages {
    std::vector<Tensor> pages;
    std::vector<KvRows> sequences;

    std::span<const KvRows> take(size_t part, std::span<const KvRows> all);
  };
  template <typename Op>
  void run_where_it_lies(const Op& op);
  /// Records an operation on a device; `own` is changed.
  template <typename Op>
  void run_there(size_t part, Op& own);
  /// Records attention whose heads devices divide, each those whose keys it has: they read queries,
  /// keys and values where the device at hand has them, and write what it gets there, head by head.
  void run_by_heads(ops::Attention op, const HeadsBuffer& memory);
  /// Copies memory whose heads devices divide.
  void run_by_heads(const ops::Copy& op, const HeadsBuffer& memory);
  EventId submit_part(size_t part);
  /// Records experts of another device than that at hand, which goes on meanwhile: they read their
  /// inputs there, and write their slots there.
  void run_beside(size_t part, ops::ExpertFfn op);
  /// True when these experts may still be writing what an operation touches.
  template <typename Op>
  bool touches_beside(Op& op) const;
  /// Work from now on is behind all that runs beside.
  void join();
  /// Goes on with a device, which gets what scratch holds.
  void move_to(size_t part);
  /// To record on it.
  Encoder& on(size_t part);

  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::vector<std::unique_ptr<Encoder>> views_;  // see on_part()
  std::vector<EventId> submitted_;               // of each, the last; 0: none
  std::vector<bool> is_recorded_;                // work that has not been submitted
  ScratchArena scratch_;                         // a copy on each device
  size_t at_ = 0;                                // the device of the work at hand
  std::vector<size_t> beside_;                   // devices that compute for it
  Tensor beside_slots_;                          // and what they write
  std::vector<HeadPages> head_pages_;            // of each, for the last divided attention
  uint64_t events_ = 0;
  Status status_;
};

}  // namespace moeflux
