// The writing half of route_trace.h.
#include <algorithm>
#include <charconv>

#include "base/format.h"
#include "experts/routes/route_trace.h"

namespace moeflux {
namespace {

constexpr size_t kPendingBytesMax = 64 * 1024;

// A model's name is one word in the header.
std::string one_word(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; }, '_');
  return text.empty() ? "unknown" : text;
}

void append_number(std::string& out, int64_t value, char end) {
  std::array<char, 24> digits;
  char* stop = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  *stop++ = end;
  out.append(digits.data(), stop);
}

// Shortest text that reads back as the same float.
void append_number(std::string& out, float value, char end) {
  std::array<char, 32> digits;
  char* stop = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  *stop++ = end;
  out.append(digits.data(), stop);
}

}  // namespace

RouteTraceLines::RouteTraceLines(const RouteTraceHeader& header)
    : header_(header), seen_(static_cast<size_t>(header.num_experts), -1) {}

std::string RouteTraceLines::head() const {
  std::string text =
      formatted("# route_trace v1\n# model={} arch={} n_layer={} n_expert={} n_expert_used={}\n",
                one_word(header_.model), one_word(header_.arch), header_.num_layers,
                header_.num_experts, header_.top_k);
  for (size_t l = 0; l < header_.expert_bytes.size(); ++l) {
    if (header_.expert_bytes[l] == 0) continue;
    text += formatted("# layer={} expert_bytes={}\n", l, header_.expert_bytes[l]);
  }
  return text + "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,visit\n";
}

RouteTraceWriter::RouteTraceWriter(std::unique_ptr<AtomicFileWriter> file,
                                   const RouteTraceHeader& header)
    : file_(std::move(file)), lines_(header), pending_(lines_.head()) {}

Result<std::unique_ptr<RouteTraceWriter>> RouteTraceWriter::create(const std::string& path,
                                                                   const RouteTraceHeader& header) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFileWriter> file, AtomicFileWriter::create(path));
  return std::unique_ptr<RouteTraceWriter>(new RouteTraceWriter(std::move(file), header));
}

void RouteTraceLines::add(const LayerRoutes& routes, std::span<const ExpertId> misses,
                          std::string& text) {
  if (visits_ > 0 && routes.position < position_) ++turn_;
  position_ = routes.position;
  const auto visit = static_cast<int64_t>(visits_++);
  const auto layer = static_cast<size_t>(index(routes.layer));
  const uint64_t bytes = layer < header_.expert_bytes.size() ? header_.expert_bytes[layer] : 0;
  const auto top_k = static_cast<size_t>(routes.top_k());
  for (size_t i = 0; i < routes.ids.size(); ++i) {
    const int32_t expert = routes.ids[i];
    const bool missed = std::binary_search(misses.begin(), misses.end(), ExpertId{expert});
    const bool paid = std::exchange(seen_[static_cast<size_t>(expert)], visit) == visit;
    append_number(text, turn_, ',');
    append_number(text, static_cast<int64_t>(routes.phase), ',');
    append_number(text, routes.position + static_cast<int64_t>(i / top_k), ',');
    append_number(text, int64_t{index(routes.layer)}, ',');
    append_number(text, static_cast<int64_t>(i % top_k), ',');
    append_number(text, int64_t{expert}, ',');
    append_number(text, i < routes.weights.size() ? routes.weights[i] : 0.0f, ',');
    append_number(text, int64_t{missed ? 0 : 1}, ',');
    append_number(text, missed && !paid ? static_cast<int64_t>(bytes) : int64_t{0}, ',');
    append_number(text, visit, '\n');
  }
}

void RouteTraceWriter::routed(const LayerRoutes& routes, std::span<const ExpertId> misses) {
  lines_.add(routes, misses, pending_);
  if (pending_.size() >= kPendingBytesMax) flush();
}

void RouteTraceWriter::flush() {
  if (status_.ok()) status_ = file_->write(std::as_bytes(std::span(pending_)));
  pending_.clear();
}

Status RouteTraceWriter::commit() {
  flush();
  MF_RETURN_IF_ERROR(status_);
  return file_->commit();
}

}  // namespace moeflux
