#include "backend/gpu/launch/recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/gpu/launch/plan_building.h"
#include "backend/host_buffer.h"

namespace moeflux::gpu {

Recorder::Recorder(Platform& platform, std::unique_ptr<Executor> executor,
                   std::unique_ptr<Buffer> scratch)
    : platform_(platform),
      executor_(std::move(executor)),
      scratch_(std::move(scratch)),
      quantized_(platform),
      tables_(platform, *executor_),
      workspace_(platform),
      gathered_(platform) {}

void Recorder::finish() {
  if (!in_flight_.empty()) (void)executor_->wait(in_flight_.back().event);
}

bool Recorder::fail(Error error) {
  if (status_.ok()) status_ = std::move(error);
  return false;
}

void Recorder::record(const Plan& plan, Writes writes) {
  MF_CHECK(plan.shared_bytes <= platform_.shared_bytes_max());
  quantized_.note(plan);
  executor_->record(plan);
  if (plan.groups.x == 0 || plan.groups.y == 0 || plan.groups.z == 0) return;  // no launch
  has_written_by_address_ = writes == Writes::kByAddress;
  written_.clear();
  for (uint32_t i = 0; i < plan.num_bindings; ++i) {
    if (plan.bindings[i].access != Access::kRead) written_.push_back(plan.bindings[i]);
  }
}

bool Recorder::has_just_written(const Tensor& tensor) const {
  const Binding range = range_of(tensor, Access::kRead);
  return has_written_by_address_ ||
         std::any_of(written_.begin(), written_.end(),
                     [&](const Binding& other) { return have_overlap(other, range); });
}

EventId Recorder::submit() {
  quantized_.clear();  // their source may change after the event
  const EventId event = executor_->submit();
  for (std::unique_ptr<Retained>& resource : recorded_) {
    in_flight_.push_back({event, std::move(resource)});
  }
  recorded_.clear();
  // In the order of their events: to ask a runtime takes longer than to record a launch.
  const auto running = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& f) {
    return !executor_->has_passed(f.event);
  });
  in_flight_.erase(in_flight_.begin(), running);
  return event;
}

Status Recorder::wait(EventId event) {
  const Status done = executor_->wait(event);
  std::erase_if(in_flight_, [&](const InFlight& f) { return f.event <= event; });
  return status_.ok() ? done : status_;
}

void Recorder::write(const Tensor& to, std::span<const std::byte> from) {
  MF_CHECK(to.is_contiguous() && to.size_bytes() == from.size());
  quantized_.clear();
  if (!from.empty()) executor_->write(*to.buffer, to.offset_bytes, from);
}

Status Recorder::read(std::span<std::byte> to, const Tensor& from) {
  MF_CHECK(from.is_contiguous() && from.size_bytes() == to.size());
  MF_RETURN_IF_ERROR(status_);
  quantized_.clear();
  const Status done = executor_->read(to, *from.buffer, from.offset_bytes);
  if (!done.ok()) {
    (void)submit();  // recorded work may still run
    return done;
  }
  recorded_.clear();
  in_flight_.clear();
  return {};
}

void Recorder::take(const Tensor& to, Recorder& other, const Tensor& from) {
  MF_CHECK(to.is_contiguous() && from.is_contiguous() && to.size_bytes() == from.size_bytes());
  quantized_.clear();
  executor_->take(*to.buffer, to.offset_bytes, *other.executor_, *from.buffer, from.offset_bytes,
                  from.size_bytes());
}

void Recorder::await(Recorder& other) {
  quantized_.clear();
  executor_->await(*other.executor_);
}

Tensor Recorder::scratch(const Shape& shape, DType dtype) { return scratch_.take(shape, dtype); }

bool Recorder::take_workspace(size_t bytes, Binding& space) {
  const Result<Binding> taken = workspace_.take(bytes);
  if (!taken.ok()) return fail(taken.error());
  space = *taken;
  return true;
}

bool Recorder::take_gathered(size_t bytes, Binding& space) {
  const Result<Binding> taken = gathered_.take(bytes);
  if (!taken.ok()) return fail(taken.error());
  space = *taken;
  return true;
}

bool Recorder::place_table(std::span<const std::byte> bytes, Binding& table) {
  const Result<Binding> placed = tables_.place(bytes);
  if (!placed.ok()) return fail(placed.error());
  table = *placed;
  return true;
}

bool Recorder::make_room(size_t bytes) {
  const Status made = tables_.make_room(bytes);
  return made.ok() || fail(made.error());
}

bool Recorder::place_addresses(std::span<const Tensor> tensors, Binding& table) {
  table_bytes_.resize(tensors.size() * sizeof(u64));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const u64 address = address_of(tensors[i]);
    std::memcpy(table_bytes_.data() + i * sizeof(u64), &address, sizeof(u64));
  }
  return place_table(table_bytes_, table);
}

Result<std::unique_ptr<Buffer>> Recorder::make_table(std::span<const std::byte> bytes) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> table,
                      platform_.allocate(bytes.size(), MemoryKind::kDevice));
  executor_->write(*table, 0, bytes);
  return table;
}

uint64_t Recorder::address_of(const Tensor& tensor) const {
  if (tensor.is_null()) return 0;
  return platform_.device_address(*tensor.buffer) + tensor.offset_bytes;
}

}  // namespace moeflux::gpu
