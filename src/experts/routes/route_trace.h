// Recorded routes, `route_trace v1`: which experts every layer chose for every token, as CSV.
//
//   # route_trace v1
//   # model=NAME arch=FAMILY n_layer=48 n_expert=128 n_expert_used=8
//   # layer=0 expert_bytes=3059712 dense_bytes=11953152        (optional, a line per layer)
//   turn,phase,step,layer,slot,expert,weight,residency,expert_bytes[,visit]
//   0,0,0,0,0,38,0.0976991,1,0,0
//
// phase 0 is the prompt, 1 decode; step counts tokens; slot is the rank of the expert; residency 1
// means that it was cached, expert_bytes what was read for it. Rows of the layers of one step stand
// together, and in a prompt the tokens evaluated together of one layer. `visit` is ours: it numbers
// what a layer was asked for at once; without it, visits are told apart by layer, phase and step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "experts/cache/expert_cache.h"
#include "experts/route_observer.h"
#include "io/file.h"

namespace moeflux {

struct RouteTraceHeader {
  std::string model = "unknown";
  std::string arch = "unknown";
  int32_t num_layers = 0;
  int32_t num_experts = 0;
  int32_t top_k = 0;
  std::vector<uint64_t> expert_bytes;  // by layer; empty when unknown
};

class RouteTrace {
 public:
  /// The routes that a layer was asked for at once.
  struct Visit {
    int32_t turn = 0;
    StepPhase phase = StepPhase::kDecode;
    LayerId layer{};
    int64_t step = 0;  // of the first token
    int64_t tokens = 0;
    size_t begin = 0;  // into ids and weights
    size_t count = 0;  // tokens * top_k of this visit
  };

  /// Fails with kCorruption naming the line, what was found and what was expected, kUnsupported for
  /// another version, and kFailedPrecondition for a trace without routes.
  static Result<RouteTrace> parse(std::string_view text);
  /// The file at `path`, at most 4 GiB.
  static Result<RouteTrace> read(const std::string& path);

  const RouteTraceHeader& header() const { return header_; }
  std::span<const Visit> visits() const { return visits_; }
  LayerRoutes routes(const Visit& visit) const;
  ExpertShape shape() const { return {header_.num_layers, header_.num_experts}; }
  /// As decode shows it; the layers that have experts count.
  TokenDemand demand() const;
  uint64_t expert_bytes(LayerId layer) const;

 private:
  friend class RouteTraceParser;

  RouteTraceHeader header_;
  std::vector<Visit> visits_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
};

/// The text of a trace, as routes are observed.
class RouteTraceLines {
 public:
  explicit RouteTraceLines(const RouteTraceHeader& header);

  /// The first lines, before all others.
  std::string head() const;
  /// A position that does not go on where the layer stopped begins a new turn.
  void add(const LayerRoutes& routes, std::span<const ExpertId> misses, std::string& text);

 private:
  RouteTraceHeader header_;
  int64_t turn_ = 0;
  int64_t position_ = 0;  // of the latest step
  uint64_t visits_ = 0;
  std::vector<int64_t> seen_;  // by expert: the visit that last paid for it
};

/// Writes a trace as routes are observed. The file appears complete at commit(), or not at all.
class RouteTraceWriter : public RouteObserver {
 public:
  static Result<std::unique_ptr<RouteTraceWriter>> create(const std::string& path,
                                                          const RouteTraceHeader& header);

  void routed(const LayerRoutes& routes, std::span<const ExpertId> misses) override;
  /// Fails with the first error of any write.
  Status commit();

 private:
  RouteTraceWriter(std::unique_ptr<AtomicFileWriter> file, const RouteTraceHeader& header);
  void flush();

  std::unique_ptr<AtomicFileWriter> file_;
  RouteTraceLines lines_;
  std::string pending_;
  Status status_;
};

}  // namespace moeflux
