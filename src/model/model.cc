#include "model/model.h"

#include "base/check.h"

namespace moeflux {

Status Model::draft(const ForwardStep& /*step*/, const DraftRows& /*rows*/,
                    Tensor /*logits*/) const {
  MF_CHECK(spec().draft_layers > 0);
  return make_error(ErrorCode::kUnsupported, "models of type {} draft nothing", spec().model_type);
}

}  // namespace moeflux
