#include "load/score_head.h"

#include "base/format.h"
#include "model/weights/weight_reads.h"

namespace moeflux {
namespace {

constexpr int64_t kLabelsMax = 64;

bool holds_floats(const TensorEntry& entry) { return entry.format || is_plain_float(entry.dtype); }

}  // namespace

std::vector<double> ScoreHead::scores(std::span<const float> hidden) const {
  std::vector<double> scores(rows.size() / hidden.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    double sum = biases.empty() ? 0.0 : static_cast<double>(biases[i]);
    for (size_t j = 0; j < hidden.size(); ++j) {
      sum += static_cast<double>(rows[i * hidden.size() + j]) * static_cast<double>(hidden[j]);
    }
    scores[i] = sum;
  }
  return scores;
}

Result<std::optional<ScoreHead>> read_score_head(const LoadedModel& model) {
  const int64_t width = model.spec().hidden_size;
  for (const std::string_view prefix : kScoreHeadPrefixes) {
    ScoreHead head{.name = std::string(prefix) + "weight"};
    const TensorEntry* rows = model.index.find(head.name);
    if (rows == nullptr) continue;
    const bool is_vector = rows->shape.rank() == 1;
    const int64_t labels = is_vector ? 1 : rows->shape[0];
    if (rows->shape.rank() > 2 || rows->shape.back() != width || labels < 1 ||
        labels > kLabelsMax || !holds_floats(*rows)) {
      return make_error(ErrorCode::kUnsupported,
                        "tensor {} is {} {}, expected numbers of at most {} labels and {} columns",
                        head.name, rows->type_name(), rows->shape.to_string(), kLabelsMax, width);
    }
    MF_ASSIGN_OR_RETURN(head.rows, read_floats(model.index, head.name, *rows));
    const std::string bias = std::string(prefix) + "bias";
    if (const TensorEntry* found = model.index.find(bias)) {
      if (found->shape.num_elements() != labels || !holds_floats(*found)) {
        return make_error(ErrorCode::kUnsupported, "tensor {} is {} {}, expected {} numbers", bias,
                          found->type_name(), found->shape.to_string(), labels);
      }
      MF_ASSIGN_OR_RETURN(head.biases, read_floats(model.index, bias, *found));
    }
    return std::optional(std::move(head));
  }
  return std::optional<ScoreHead>();
}

}  // namespace moeflux
