// Memory, transfers and submission.
#include "backend/gpu/gpu_encoder.h"

#include <algorithm>
#include <utility>

#include "backend/gpu/expert_launch.h"
#include "backend/gpu/plan_building.h"
#include "backend/host_buffer.h"
#include "base/format.h"

namespace moeflux::gpu {

GpuEncoder::GpuEncoder(Platform& platform, std::unique_ptr<Executor> executor,
                       std::unique_ptr<Buffer> scratch)
    : platform_(platform),
      executor_(std::move(executor)),
      scratch_(std::move(scratch)),
      splits_{SplitRows(platform), SplitRows(platform)},
      tables_(platform, *executor_),
      workspace_(platform) {}

GpuEncoder::~GpuEncoder() {
  // Nothing may be freed under work that still runs; what was not submitted never will.
  if (!in_flight_.empty()) (void)executor_->wait(in_flight_.back().event);
}

Tensor GpuEncoder::scratch(const Shape& shape, DType dtype) {
  const size_t bytes =
      static_cast<size_t>(shape.num_elements()) * static_cast<size_t>(dtype_bits(dtype)) / 8;
  const ScratchExtent extent = next_scratch_extent(scratch_used_, bytes);
  scratch_used_ = extent.end;
  return Tensor::view(*scratch_, extent.begin, shape, dtype);
}

void GpuEncoder::keep_alive(std::unique_ptr<Retained> resource) {
  recorded_.push_back(std::move(resource));
}

void GpuEncoder::write(Tensor to, std::span<const std::byte> from) {
  MF_CHECK(to.is_contiguous() && to.size_bytes() == from.size());
  flush_waiting();
  forget_splits();
  if (!from.empty()) executor_->write(*to.buffer, to.offset_bytes, from);
}

Status GpuEncoder::read(std::span<std::byte> to, Tensor from) {
  MF_CHECK(from.is_contiguous() && from.size_bytes() == to.size());
  MF_RETURN_IF_ERROR(status_);
  flush_waiting();
  forget_splits();
  const Status done = executor_->read(to, *from.buffer, from.offset_bytes);
  if (!done.ok()) {
    (void)submit();  // what was recorded may still run
    return done;
  }
  recorded_.clear();
  in_flight_.clear();
  return {};
}

void GpuEncoder::record(const Plan& plan) {
  MF_CHECK(plan.shared_bytes <= platform_.shared_bytes_max());
  flush_waiting();
  for (SplitRows& split : splits_) {
    if (writes(plan, split.x)) split.x = {};
  }
  executor_->record(plan);
  if (plan.groups.x == 0 || plan.groups.y == 0 || plan.groups.z == 0) return;  // no launch
  written_.clear();
  for (uint32_t i = 0; i < plan.num_bindings; ++i) {
    if (plan.bindings[i].access != Access::kRead) written_.push_back(plan.bindings[i]);
  }
}

bool GpuEncoder::has_just_written(const Tensor& tensor) const {
  const Binding range = range_of(tensor, Access::kRead);
  return std::any_of(written_.begin(), written_.end(),
                     [&](const Binding& other) { return have_overlap(other, range); });
}

// Products, chains, heads and the delta rule never wait together with experts: whoever starts to
// wait hands over what else does.
void GpuEncoder::flush_waiting() {
  flush_experts();
  if (waiting_down_ && !waiting_.chain.after_down) {
    const WaitingDown down = *std::exchange(waiting_down_, {});
    record(down.plan);
  }
  if (waiting_attention_) {
    const WaitingAttention attention = *std::exchange(waiting_attention_, {});
    record(attention.plan);
  }
  if (waiting_.is_empty()) return;
  const Waiting waiting = waiting_;
  waiting_.clear();
  if (!waiting.products.empty()) {
    record_products(waiting);
  } else if (waiting.has_chain()) {
    record_chain(waiting.chain);
  } else if (waiting.has_delta()) {
    record_delta(waiting.delta, {});
  } else {
    record_each(waiting.heads);
  }
}

EventId GpuEncoder::submit() {
  flush_waiting();
  forget_splits();  // whoever waits for the event may change what they were made of
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

Status GpuEncoder::wait(EventId event) {
  const Status done = executor_->wait(event);
  release_through(event);
  return status_.ok() ? done : status_;
}

void GpuEncoder::release_through(EventId event) {
  std::erase_if(in_flight_, [&](const InFlight& f) { return f.event <= event; });
}

bool GpuEncoder::fail(Error error) {
  if (status_.ok()) status_ = std::move(error);
  return false;
}

Result<Binding> GpuEncoder::place_table() {
  if (waiting_down_) flush_waiting();
  return tables_.place(table_bytes_);
}

uint64_t GpuEncoder::address_of(const Tensor& tensor) const {
  if (tensor.is_null()) return 0;
  return platform_.device_address(*tensor.buffer) + tensor.offset_bytes;
}

ExpertMatrix GpuEncoder::addresses_of(const Weight& weight, const Tensor& bias) const {
  return {address_of(weight.data), address_of(weight.scales), address_of(weight.biases),
          address_of(bias)};
}

bool GpuEncoder::supports(const char* op, const Weight& weight) {
  if (!status_.ok()) return false;
  const QuantFormat& format = weight.format;
  const auto unit = static_cast<size_t>(dtype_bits(format.dtype)) / 8;
  const bool is_affine = format.kind == QuantKind::kAffine;
  const bool is_aligned = weight.data.offset_bytes % (is_affine ? 4 : unit) == 0 &&
                          weight.scales.offset_bytes % unit == 0 &&
                          weight.biases.offset_bytes % unit == 0;
  if (has_kernels(format) && is_valid(format, weight.cols) &&
      format.order == WeightOrder::kRowMajor && is_aligned) {
    return true;
  }
  return fail(make_error(ErrorCode::kUnsupported, "{}: a [{}, {}] weight in format {} of {}{}", op,
                         weight.rows, weight.cols, format.to_string(), dtype_name(format.dtype),
                         is_aligned ? "" : ", not aligned"));
}

}  // namespace moeflux::gpu
