// Encoder: what a model may ask of a device: memory, copies and operations (backend/ops).
//
// A call records work in program order; nothing is promised until wait(). Errors (an unsupported
// format, a lost device) stick to the encoder and surface at submit() or wait(): model code does
// not check each call. Activations are f32. n is the number of tokens in the step, which may be of
// several sequences. A token's bits depend neither on the chunk it arrived in nor on other
// sequences. Operations that remember take a list that says whose the rows are. Inputs and outputs
// must not overlap unless an operation says so. Thread-compatible: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/events.h"
#include "backend/expert_memory.h"
#include "backend/op_table.h"
#include "base/result.h"

namespace moeflux {

class Encoder {
 public:
  virtual ~Encoder() = default;

  // --- Memory ---

  /// Uninitialised memory, valid until the enclosing ScratchScope ends. Never allocates from the
  /// system: aborts past the bytes the encoder was created with, which the dry run has measured.
  virtual Tensor scratch(const Shape& shape, DType dtype) = 0;
  virtual size_t scratch_mark() const = 0;
  virtual void scratch_release(size_t mark) = 0;
  virtual void keep_alive(std::unique_ptr<Retained> resource) = 0;
  /// Records on Device::part(), in order with what is recorded there otherwise; errors are this
  /// encoder's. Itself where there is one device.
  virtual Encoder& on_part(size_t /*number*/) { return *this; }

  // --- Host transfers ---

  /// Copies `from` into a contiguous tensor of its size, in order with the work recorded before.
  virtual void write(Tensor to, std::span<const std::byte> from) = 0;
  /// Waits for the work so far, then copies a contiguous tensor out. Fails with the sticky error.
  virtual Status read(std::span<std::byte> to, Tensor from) = 0;

  /// Copies from memory of another GPU of this kind: behind the work recorded there so far, before
  /// any that is recorded there or here from now on. Both tensors are contiguous and of one size.
  virtual void take(Tensor to, Encoder& other, Tensor from);
  /// Work recorded here from now on runs behind the work recorded there so far.
  virtual void await(Encoder& other);
  /// Work of the host on the threads that compute here, if any do: fn(0) to fn(count - 1), perhaps
  /// at once. Returns when all have run; recorded work may run meanwhile.
  virtual void run_on_host(int64_t count, const std::function<void(int64_t)>& fn) {
    for (int64_t i = 0; i < count; ++i) fn(i);
  }

  // --- Copies beside recorded work: only where Device::copies_beside() ---

  /// Copies, once the work before `after` has finished, after the copies of earlier calls; what is
  /// recorded runs meanwhile. The buffers must live until it is done. Errors stick to the encoder.
  virtual CopyId copy_beside(std::span<const BufferCopy> copies, EventId after);
  /// Work recorded from now on waits, on the device, for these copies and all before them.
  virtual void await_copies(CopyId last);
  /// True once these copies and all before them are done, or an error has ended them. Never blocks.
  virtual bool has_copied(CopyId last);

  // --- Operations ---

  /// Records an operation (backend/ops). Aborts with the text of its check() where it is wrong,
  /// which is a bug of ours.
  template <typename Op>
  void run(const Op& op) {
    require(op.check());
    execute({ops::kind_of<Op>(), &op});
  }

  /// Says that these experts are and stay what and where they are for as long as anybody owns the
  /// vector, but for what experts_moved() says: what expert_ffn finds out about them when all are
  /// ready may be remembered. Changes no result.
  virtual void experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& /*experts*/,
                            const ExpertMemory& /*memory*/ = {}) {}
  /// Says that the experts at these places of the vector have been given other addresses, as
  /// aligned as before: work recorded from now on finds them there, earlier work where they were.
  virtual void experts_moved(const std::vector<ExpertWeights>& /*experts*/,
                             std::span<const size_t> /*which*/) {}

  // --- Submission ---

  /// Hands the recorded work to the device. Errors recorded so far surface in wait().
  virtual EventId submit() = 0;
  /// Blocks until the event has passed; releases what was kept alive for it.
  virtual Status wait(EventId event) = 0;

 protected:
  /// Records a right operation.
  virtual void execute(const ops::AnyOp& op) = 0;
  /// The same by other operations. Aborts where it is not made of others.
  void compose(const ops::AnyOp& op);

 private:
  static void require(const Status& status);
};

/// Gives scratch back at the end of a block, so that depth does not grow it.
class ScratchScope {
 public:
  explicit ScratchScope(Encoder& encoder) : encoder_(encoder), mark_(encoder.scratch_mark()) {}
  ~ScratchScope() { encoder_.scratch_release(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Encoder& encoder_;
  size_t mark_;
};

}  // namespace moeflux
