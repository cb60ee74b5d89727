// Launches on their way to an executor: what the last one wrote, what has to live until they have
// finished, and the memory they share. Knows nothing of operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/events.h"
#include "backend/gpu/launch/device_tables.h"
#include "backend/gpu/launch/executor.h"
#include "backend/gpu/launch/inline_vector.h"
#include "backend/gpu/launch/plan.h"
#include "backend/gpu/launch/quantized_rows.h"
#include "backend/host_buffer.h"

namespace moeflux::gpu {

/// Whether a launch writes to memory besides its bindings, by addresses of a table.
enum class Writes { kBound, kByAddress };

/// Used by one thread at a time. The first error sticks and surfaces in read() and wait().
class Recorder {
 public:
  /// The platform must outlive the recorder; `scratch` is what scratch() hands out.
  Recorder(Platform& platform, std::unique_ptr<Executor> executor, std::unique_ptr<Buffer> scratch);
  ~Recorder() { finish(); }
  /// Waits for what was submitted, as nothing may be freed under work that still runs. Unsubmitted
  /// work never runs.
  void finish();

  Platform& platform() const { return platform_; }
  bool ok() const { return status_.ok(); }
  /// False, for whoever returns whether something worked.
  bool fail(Error error);

  // --- Launches ---

  void record(const Plan& plan, Writes writes = Writes::kBound);
  /// True when the last launch, which the next one may start beside, may write to it.
  bool has_just_written(const Tensor& tensor) const;
  /// Hands over what was recorded, with what must outlive it.
  EventId submit();
  /// Blocks until the event has passed; releases what was kept alive for it.
  Status wait(EventId event);
  void keep_alive(std::unique_ptr<Retained> resource) { recorded_.push_back(std::move(resource)); }

  // --- Copies beside launches, as Encoder's ---

  CopyId copy_beside(std::span<const BufferCopy> copies, EventId after) {
    return executor_->copy_beside(copies, after);
  }
  void await_copies(CopyId last) { executor_->await_copies(last); }
  bool has_copied(CopyId last) { return executor_->has_copied(last); }

  // --- Memory ---

  void write(const Tensor& to, std::span<const std::byte> from);
  Status read(std::span<std::byte> to, const Tensor& from);
  /// As Encoder::take().
  void take(const Tensor& to, Recorder& other, const Tensor& from);
  /// As Encoder::await().
  void await(Recorder& other);
  Tensor scratch(const Shape& shape, DType dtype);
  size_t scratch_mark() const { return scratch_.mark(); }
  void scratch_release(size_t mark) { scratch_.release(mark); }
  /// Memory for the launches of one operation. False, and the error sticks, if there is none.
  bool take_workspace(size_t bytes, Binding& space);
  /// The same of a second one, for what attention is to read.
  bool take_gathered(size_t bytes, Binding& space);
  /// Small tables, as DeviceTables places them. The memory of older ones may be taken: what waits
  /// for a table has to be recorded before.
  bool place_table(std::span<const std::byte> bytes, Binding& table);
  /// So that tables of so many bytes together take the place of none among them. False as above.
  bool make_room(size_t bytes);
  /// Where tensors begin, as a table.
  bool place_addresses(std::span<const Tensor> tensors, Binding& table);
  /// Room for a table that is being made; keeps its memory.
  std::vector<u64>& table_words() { return table_words_; }
  /// A table in a buffer of its own, which the caller keeps until no launch needs it.
  Result<std::unique_ptr<Buffer>> make_table(std::span<const std::byte> bytes);
  /// Writes into such a table, in order with the launches.
  void write_table(Buffer& table, uint64_t offset_bytes, std::span<const std::byte> bytes) {
    executor_->write(table, offset_bytes, bytes);
  }
  /// 0 of a null tensor.
  uint64_t address_of(const Tensor& tensor) const;
  /// Rows of activations as integers, for as long as the rows stay unchanged.
  QuantizedCache& quantized() { return quantized_; }

 private:
  struct InFlight {
    EventId event{};
    std::unique_ptr<Retained> resource;
  };

  Platform& platform_;
  std::unique_ptr<Executor> executor_;
  ScratchArena scratch_;
  InlineVector<Binding, Plan::kBindingsMax> written_;  // by the last launch
  bool has_written_by_address_ = false;                // it has
  QuantizedCache quantized_;
  DeviceTables tables_;
  Workspace workspace_;
  Workspace gathered_;
  std::vector<std::byte> table_bytes_;
  std::vector<u64> table_words_;
  std::vector<std::unique_ptr<Retained>> recorded_;  // work that uses them is not submitted yet
  std::vector<InFlight> in_flight_;
  Status status_;
};

}  // namespace moeflux::gpu
