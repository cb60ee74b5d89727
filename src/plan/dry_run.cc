#include "plan/dry_run.h"

#include <memory>

#include "backend/trace/trace_device.h"
#include "backend/trace/trace_encoder.h"

namespace moeflux {

Result<DryRun> dry_run(const Model& model, int64_t tokens, int64_t logits_rows,
                       const Device* target) {
  const std::unique_ptr<Device> device = make_trace_device();
  MF_ASSIGN_OR_RETURN(std::unique_ptr<SequenceState> state,
                      SequenceState::create(*device, state_specs(model.spec()), tokens));
  const std::unique_ptr<Buffer> inputs = make_unbacked_buffer(SIZE_MAX / 2);
  const Tensor ids = Tensor::view(*inputs, 0, {tokens}, DType::kI32);
  const Tensor logits =
      logits_rows == 0
          ? Tensor{}
          : Tensor::view(*inputs, 0, {logits_rows, model.spec().vocab_size}, DType::kF32);
  const std::unique_ptr<ExpertStore> no_experts = make_empty_expert_store();
  TraceEncoder trace(target);
  MF_RETURN_IF_ERROR(state->reserve(tokens, trace));
  StepBatch batch;  // of decode, which applies routers early: no step takes more scratch
  batch.add(*state, {.rows = tokens, .phase = StepPhase::kDecode, .logits_rows = logits_rows});
  MF_RETURN_IF_ERROR(model.forward({trace, ids, ids, batch, *no_experts}, logits));
  if (model.spec().draft_layers > 0) {
    MF_RETURN_IF_ERROR(model.draft({trace, ids, ids, batch, *no_experts}, {}, {}));
  }
  MF_RETURN_IF_ERROR(trace.wait(trace.submit()));
  return DryRun{trace.scratch_bytes_max(), trace.weight_bytes(), trace.multiply_adds(),
                trace.to_string()};
}

}  // namespace moeflux
