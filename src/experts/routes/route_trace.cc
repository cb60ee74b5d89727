#include "experts/routes/route_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

constexpr std::string_view kMagic = "# route_trace v1";
constexpr std::string_view kColumns =
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes";
constexpr uint64_t kFileBytesMax = 4 * kGiB;
// Beyond any model: what a header may make us allocate stays small.
constexpr int64_t kLayersMax = 4096;
constexpr int64_t kExpertsMax = 65536;
constexpr int64_t kExpertsOfAllLayersMax = 1 << 20;
constexpr size_t kFieldsMax = 10;

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// std::from_chars of floats is younger than some of our compilers.
std::optional<float> parse_float(std::string_view text) {
  std::array<char, 48> buffer{};
  if (text.empty() || text.size() >= buffer.size() || text.front() == ' ') return std::nullopt;
  std::copy(text.begin(), text.end(), buffer.begin());
  char* end = nullptr;
  const float value = std::strtof(buffer.data(), &end);
  if (end != buffer.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string excerpt(std::string_view text) {
  constexpr size_t kMost = 60;
  return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "...";
}

}  // namespace

class RouteTraceParser {
 public:
  explicit RouteTraceParser(std::string_view text) : rest_(text) {}

  Result<RouteTrace> run() {
    MF_RETURN_IF_ERROR(read_header());
    while (next_line()) {
      if (line_.empty()) continue;
      MF_RETURN_IF_ERROR(line_.front() == '#' ? read_comment() : read_row());
    }
    MF_RETURN_IF_ERROR(end_token());
    if (trace_.visits_.empty()) {
      return make_error(ErrorCode::kFailedPrecondition, "the trace has no routes");
    }
    return std::move(trace_);
  }

 private:
  struct Row {
    int64_t turn = 0, phase = 0, step = 0, layer = 0, slot = 0, expert = 0, visit = -1;
    float weight = 0.0f;
  };

  bool next_line() {
    if (rest_.empty()) return false;
    const size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    ++line_number_;
    return true;
  }
  Error corrupt(std::string_view found, std::string_view expected) const {
    return make_error(ErrorCode::kCorruption, "line {}: found {}, expected {}", line_number_,
                      excerpt(found), expected);
  }

  Status read_header() {
    if (!next_line() || line_ != kMagic) {
      if (line_.rfind("# route_trace v", 0) == 0) {
        return make_error(ErrorCode::kUnsupported, "line 1: found '{}', expected '{}'",
                          excerpt(line_), kMagic);
      }
      return corrupt(formatted("'{}'", excerpt(line_)), formatted("'{}'", kMagic));
    }
    while (next_line()) {
      if (line_.empty()) continue;
      if (line_.front() != '#') return read_columns();
      MF_RETURN_IF_ERROR(read_comment());
    }
    return corrupt("the end", formatted("the columns '{}'", kColumns));
  }

  Status read_columns() {
    const bool ours = line_ == std::string(kColumns) + ",visit";
    if (!ours && line_ != kColumns) return corrupt(line_, formatted("the columns '{}'", kColumns));
    num_fields_ = ours ? 10 : 9;
    const RouteTraceHeader& header = trace_.header_;
    if (header.num_layers == 0 || header.num_experts == 0) {
      return corrupt("the columns", "a comment with n_layer= and n_expert= before");
    }
    const int64_t all = int64_t{header.num_layers} * header.num_experts;
    if (all > kExpertsOfAllLayersMax) {
      return corrupt(formatted("{} layers of {} experts", header.num_layers, header.num_experts),
                     formatted("at most {} experts in all", kExpertsOfAllLayersMax));
    }
    return {};
  }

  // "# key=value key=value"; keys that nobody knows pass.
  Status read_comment() {
    std::string_view words = line_.substr(1);
    int64_t layer = -1;
    while (true) {
      words.remove_prefix(std::min(words.find_first_not_of(' '), words.size()));
      if (words.empty()) return {};
      const std::string_view word = words.substr(0, words.find(' '));
      words.remove_prefix(word.size());
      const size_t equal = word.find('=');
      if (equal == std::string_view::npos) continue;
      MF_RETURN_IF_ERROR(read_setting(word.substr(0, equal), word.substr(equal + 1), layer));
    }
  }

  Status read_setting(std::string_view key, std::string_view value, int64_t& layer) {
    RouteTraceHeader& header = trace_.header_;
    if (key == "model") header.model = value;
    if (key == "arch") header.arch = value;
    const bool is_shape = key == "n_layer" || key == "n_expert" || key == "n_expert_used";
    if (!is_shape && key != "layer" && key != "expert_bytes") return {};
    const std::optional<int64_t> number = parse_int(value);
    if (is_shape) {
      const int64_t most = key == "n_layer" ? kLayersMax : kExpertsMax;
      if (num_fields_ > 0) return corrupt(line_, "the model's shape before the columns");
      if (!number || *number < 1 || *number > most) {
        return corrupt(formatted("{}={}", key, value), formatted("a number from 1 to {}", most));
      }
      int32_t& field = key == "n_layer"    ? header.num_layers
                       : key == "n_expert" ? header.num_experts
                                           : header.top_k;
      field = static_cast<int32_t>(*number);
      return {};
    }
    if (key == "layer") {
      if (!number || *number < 0 || *number >= header.num_layers) {
        return corrupt(formatted("layer={}", value),
                       formatted("a layer below {}", header.num_layers));
      }
      layer = *number;
      return {};
    }
    if (!number || *number < 0 || layer < 0) {
      return corrupt(formatted("expert_bytes={}", value), "a number of bytes after layer=");
    }
    header.expert_bytes.resize(static_cast<size_t>(header.num_layers));
    header.expert_bytes[static_cast<size_t>(layer)] = static_cast<uint64_t>(*number);
    return {};
  }

  Result<Row> parse_row() const {
    std::array<std::string_view, kFieldsMax> fields;
    std::string_view rest = line_;
    size_t count = 0;
    while (count < kFieldsMax) {
      const size_t comma = rest.find(',');
      fields[count++] = rest.substr(0, comma);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    const bool whole =
        fields[count - 1].data() + fields[count - 1].size() == line_.data() + line_.size();
    if (count != num_fields_ || !whole) {
      return corrupt(formatted("'{}'", excerpt(line_)), formatted("{} fields", num_fields_));
    }
    Row row;
    const std::array<int64_t*, 6> to = {&row.turn,  &row.phase, &row.step,
                                        &row.layer, &row.slot,  &row.expert};
    for (size_t i = 0; i < to.size(); ++i) {
      const std::optional<int64_t> value = parse_int(fields[i]);
      if (!value || *value < 0 || *value > INT32_MAX) return bad_field(i, fields[i]);
      *to[i] = *value;
    }
    const std::optional<float> weight = parse_float(fields[6]);
    if (!weight) return bad_field(6, fields[6]);
    row.weight = *weight;
    if (num_fields_ > 9) {
      const std::optional<int64_t> visit = parse_int(fields[9]);
      if (!visit || *visit < 0) return bad_field(9, fields[9]);
      row.visit = *visit;
    }
    return row;
  }
  Error bad_field(size_t column, std::string_view found) const {
    return corrupt(formatted("'{}' in column {}", excerpt(found), column + 1),
                   column == 6 ? "a finite number" : "a whole number of 0 or more");
  }

  Status check_row(const Row& row) const {
    const RouteTraceHeader& header = trace_.header_;
    if (row.phase > 1) return corrupt(formatted("phase {}", row.phase), "0 or 1");
    if (row.layer >= header.num_layers) {
      return corrupt(formatted("layer {}", row.layer),
                     formatted("one below {}", header.num_layers));
    }
    if (row.expert >= header.num_experts) {
      return corrupt(formatted("expert {}", row.expert),
                     formatted("one below {}", header.num_experts));
    }
    return {};
  }

  Status read_row() {
    MF_ASSIGN_OR_RETURN(const Row row, parse_row());
    MF_RETURN_IF_ERROR(check_row(row));
    if (row.slot == 0) {
      MF_RETURN_IF_ERROR(end_token());
      begin_token(row);
    } else if (!continues_token(row)) {
      return corrupt(formatted("slot {}", row.slot),
                     "slots of one token and layer that count up from 0");
    }
    const auto token = trace_.ids_.end() - slots_;
    const auto id = static_cast<int32_t>(row.expert);
    if (std::find(token, trace_.ids_.end(), id) != trace_.ids_.end()) {
      return corrupt(formatted("expert {} again", id), "distinct experts for a token");
    }
    trace_.ids_.push_back(id);
    trace_.weights_.push_back(row.weight);
    ++slots_;
    last_ = row;
    return {};
  }

  bool continues_token(const Row& row) const {
    return slots_ > 0 && row.slot == slots_ && row.turn == last_.turn && row.phase == last_.phase &&
           row.step == last_.step && row.layer == last_.layer && row.visit == last_.visit;
  }

  // The token may join the visit before it: one layer's tokens of a prompt stand together.
  void begin_token(const Row& row) {
    bool joins = !trace_.visits_.empty() && row.turn == last_.turn && row.phase == last_.phase &&
                 row.layer == last_.layer && row.step > last_.step;
    if (num_fields_ > 9) {
      joins = joins && row.visit == last_.visit;
    } else {
      joins = joins && row.phase == 0;
    }
    if (!joins) {
      trace_.visits_.push_back({.turn = static_cast<int32_t>(row.turn),
                                .phase = static_cast<StepPhase>(row.phase),
                                .layer = LayerId{static_cast<int32_t>(row.layer)},
                                .step = row.step,
                                .begin = trace_.ids_.size()});
    }
    slots_ = 0;
  }

  Status end_token() {
    if (slots_ == 0) return {};
    RouteTrace::Visit& visit = trace_.visits_.back();
    if (visit.tokens > 0 && static_cast<int64_t>(visit.count) != visit.tokens * slots_) {
      return corrupt(formatted("a token of {} experts", slots_),
                     "as many experts as the tokens before it in this layer");
    }
    ++visit.tokens;
    visit.count += static_cast<size_t>(slots_);
    return {};
  }

  std::string_view rest_;
  std::string_view line_;
  int64_t line_number_ = 0;
  size_t num_fields_ = 0;  // 0 until the columns were read
  int64_t slots_ = 0;      // of the token being read
  Row last_;
  RouteTrace trace_;
};

Result<RouteTrace> RouteTrace::parse(std::string_view text) { return RouteTraceParser(text).run(); }

Result<RouteTrace> RouteTrace::read(const std::string& path) {
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kFileBytesMax));
  Result<RouteTrace> trace = parse(text);
  if (!trace.ok()) return trace.error().with_context(path);
  return trace;
}

LayerRoutes RouteTrace::routes(const Visit& visit) const {
  return {.layer = visit.layer,
          .phase = visit.phase,
          .position = visit.step,
          .tokens = visit.tokens,
          .ids = std::span(ids_).subspan(visit.begin, visit.count),
          .weights = std::span(weights_).subspan(visit.begin, visit.count)};
}

TokenDemand RouteTrace::demand() const {
  std::vector<int64_t> top_k(static_cast<size_t>(header_.num_layers));
  TokenDemand demand;
  for (const Visit& visit : visits_) {
    int64_t& most = top_k[static_cast<size_t>(index(visit.layer))];
    most = std::max(most, static_cast<int64_t>(visit.count) / visit.tokens);
  }
  for (const int64_t k : top_k) {
    demand.per_token += k;
    demand.per_layer = std::max(demand.per_layer, k);
  }
  return demand;
}

uint64_t RouteTrace::expert_bytes(LayerId layer) const {
  return header_.expert_bytes.empty() ? 0 : header_.expert_bytes[static_cast<size_t>(index(layer))];
}

}  // namespace moeflux
