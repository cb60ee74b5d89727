// Writes random programs: chains of ops as models have them, whose operands often are what the op
// before wrote and sometimes lie across each other, with other ops in between.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/format.h"
#include "tests/conformance/differential.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

/// A range of the arena.
struct Range {
  int64_t begin = 0;
  int64_t count = 0;
  bool overlaps(const Range& other) const {
    return begin < other.begin + other.count && other.begin < begin + count;
  }
};

class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed + 1) {
    const int64_t dice = random_.below(20);
    program_.seed = seed;
    program_.n = dice < 11 ? 1 : dice < 15 ? 2 : dice < 18 ? 3 : 5;
  }

  Program write() {
    const int64_t chains = 2 + random_.below(3);
    for (int64_t i = 0; i < chains; ++i) {
      const int64_t kind = random_.below(program_.n == 1 ? 9 : 8);
      if (kind < 3) {
        write_residual_and_products();
      } else if (kind < 5) {
        write_attention();
      } else if (kind < 8) {
        write_experts();
      } else {
        write_delta();
      }
    }
    return std::move(program_);
  }

 private:
  using Ranges = std::initializer_list<Range>;
  static constexpr int64_t kCols = World::kCols;

  int64_t slot() const { return program_.n * kCols; }
  bool chance(int64_t percent) { return random_.below(100) < percent; }

  /// Anywhere: mostly whole slots, sometimes across two, seldom off a boundary of 16 bytes.
  Range any(int64_t count) {
    int64_t begin = random_.below(World::kSlots) * slot();
    const int64_t dice = random_.below(100);
    if (dice < 15) begin += slot() / 2;
    if (dice >= 15 && dice < 20) begin += 4;
    if (dice >= 20 && dice < 23) begin += 1;
    const int64_t room = World::kSlots * slot() + World::kRoom;
    return {std::min(begin, room - count), count};
  }
  /// Memory for an op to write, apart from these.
  Range apart(int64_t count, Ranges from) {
    while (true) {
      const Range range = any(count);
      const auto overlaps = [&](const Range& other) { return range.overlaps(other); };
      if (std::none_of(from.begin(), from.end(), overlaps)) return range;
    }
  }
  /// One of `same`, or apart from all.
  Range in_place_or_apart(Ranges same, Ranges from, int64_t percent) {
    const Range& one = same.begin()[random_.below(static_cast<int64_t>(same.size()))];
    const bool fits = std::none_of(from.begin(), from.end(),
                                   [&](const Range& other) { return one.overlaps(other); });
    if (fits && chance(percent)) return one;
    return apart(one.count, from);
  }

  void add_step(std::string text, std::function<void(World&)> run) {
    program_.steps.push_back({std::move(text), std::move(run)});
  }
  // Between the ops of a chain, sometimes: something else, in whatever memory.
  void intrude() {
    const int64_t dice = random_.below(100);
    if (dice < 8) write_element_op();
    if (dice == 8) write_to_memory();
    if (dice == 9) add_step("submit", [](World& w) { w.encoder.submit(); });
    if (dice == 10) write_product(any(slot()));
    if (dice == 11) write_norm(any(slot()));
  }

  Range write_add(const Range& a, const Range& b) {
    const bool are_apart = !a.overlaps(b);
    const Range out = are_apart ? in_place_or_apart({a, b}, {}, 50) : apart(slot(), {a, b});
    // In place of one, apart from the other.
    const bool fits =
        (out.begin == a.begin || !out.overlaps(a)) && (out.begin == b.begin || !out.overlaps(b));
    const Range to = fits ? out : apart(slot(), {a, b});
    const bool turned = chance(30);
    add_step(formatted("add {} = {} + {}", to.begin, turned ? b.begin : a.begin,
                       turned ? a.begin : b.begin),
             [=](World& w) {
               w.encoder.run(ops::Add{w.rows(to.begin), w.rows((turned ? b : a).begin),
                                      w.rows((turned ? a : b).begin)});
             });
    intrude();
    return to;
  }

  Range write_norm(const Range& x) {
    const Range out = chance(25) ? x : apart(slot(), {x});
    add_step(formatted("rms_norm {} = {}", out.begin, x.begin), [=](World& w) {
      w.encoder.run(ops::RmsNorm{w.rows(out.begin), w.rows(x.begin), w.norm, 1e-6f});
    });
    return out;
  }

  Range write_product(const Range& x) {
    const Range out = apart(slot(), {x});
    // Two in five of 4 bits, as most matrices are.
    const auto which = static_cast<size_t>(random_.below(5));
    add_step(formatted("linear {} = {} by matrix {}", out.begin, x.begin, which), [=](World& w) {
      w.encoder.run(ops::Linear{w.rows(out.begin), w.rows(x.begin), w.squares[which]});
    });
    return out;
  }

  void write_element_op() {
    const Range x = any(slot());
    const Range gate = any(slot());
    const Range out = chance(50) ? x : apart(slot(), {x, gate});
    const bool is_apart = !gate.overlaps(out) && (out.begin == x.begin || !x.overlaps(out));
    const int64_t kind = random_.below(is_apart ? 6 : 2);
    add_step(formatted("element op {}: {} = {}, {}", kind, out.begin, x.begin, gate.begin),
             [=](World& w) {
               Encoder& e = w.encoder;
               if (kind == 0) e.run(ops::SoftCap{w.rows(x.begin), 3.0f});
               if (kind == 1) e.run(ops::AddBias{w.rows(x.begin), w.bias});
               if (kind == 2) e.run(ops::Scale{w.rows(out.begin), w.rows(x.begin), 0.75f});
               if (kind == 3) e.run(ops::Copy{w.rows(out.begin), w.rows(gate.begin)});
               if (kind == 4)
                 e.run(ops::Glu{w.rows(out.begin), w.rows(x.begin), w.rows(gate.begin), {}});
               if (kind == 5) {
                 e.run(ops::MulActivated{w.rows(out.begin), w.rows(x.begin), w.rows(gate.begin),
                                         Activation::kSigmoid});
               }
             });
  }

  void write_to_memory() {
    const Range to = any(slot());
    const std::vector<float> values = random_.floats(slot());
    add_step(formatted("write {}", to.begin), [=](World& w) {
      w.encoder.write(w.rows(to.begin), std::as_bytes(std::span(values)));
    });
  }

  // Sums, their norm, products of it, and a convolution of one.
  void write_residual_and_products() {
    Range value = any(slot());
    for (int64_t adds = random_.below(4); adds > 0; --adds) value = write_add(value, any(slot()));
    write_products_of_norm(value);
  }
  void write_products_of_norm(const Range& value) {
    const Range normed = chance(85) ? write_norm(value) : value;
    intrude();
    std::vector<Range> outs;
    for (int64_t i = 1 + random_.below(4); i > 0; --i) {
      outs.push_back(write_product(normed));
      intrude();
    }
    if (!chance(40)) return;
    const Range x = outs[static_cast<size_t>(random_.below(static_cast<int64_t>(outs.size())))];
    const Range out = apart(slot(), {x});
    const size_t layer = any_layer();
    const Activation activation = chance(85) ? Activation::kSilu : Activation::kIdentity;
    add_step(formatted("causal_conv {} = {}, layer {}, activation {}", out.begin, x.begin, layer,
                       static_cast<int>(activation)),
             [=](World& w) {
               w.encoder.run(ops::CausalConv{
                   w.rows(out.begin),
                   w.rows(x.begin),
                   w.conv_weight,
                   {activation},
                   testing::one_sequence(w.rows(x.begin).dim(0), w.layers[layer].conv_state)});
             });
    intrude();
  }
  size_t any_layer() { return static_cast<size_t>(random_.below(World::kLayers)); }

  // Norms and turns of heads, attention, its gate.
  void write_attention() {
    const Range q = any(slot());
    const Range k = any(slot());
    const Range v = any(slot());
    for (const Range& x : {q, k, v}) {
      if (x.begin == v.begin ? chance(20) : chance(80)) write_head_norm(x);
      intrude();
    }
    const bool same = chance(85);
    for (const Range& x : {q, k}) {
      const bool other = !same && x.begin == k.begin;
      if (chance(85)) write_turn(x, other);
      intrude();
    }
    const Range out = apart(slot(), {q, k, v});
    const size_t layer = any_layer();
    const int64_t length = random_.below(2 * World::kPageTokens - program_.n);
    add_step(formatted("attention {} = {}, {}, {} behind {}, layer {}", out.begin, q.begin, k.begin,
                       v.begin, length, layer),
             [=](World& w) {
               const World::Layer& l = w.layers[layer];
               w.encoder.run(ops::Attention{
                   w.heads(out.begin),
                   w.heads(q.begin),
                   w.heads(k.begin),
                   w.heads(v.begin),
                   testing::one_sequence(w.heads(q.begin).dim(0),
                                         {l.k_pages, l.v_pages, World::kPageTokens, length}),
                   {.scale = 0.2f}});
             });
    intrude();
    if (chance(70)) write_gate(out, Activation::kSigmoid);
    if (chance(50)) write_product(out);
  }
  void write_head_norm(const Range& x) {
    const Range out = chance(90) ? x : apart(slot(), {x});
    const bool has_weight = chance(80);
    add_step(formatted("rms_norm of heads {} = {}", out.begin, x.begin), [=](World& w) {
      w.encoder.run(ops::RmsNorm{w.heads(out.begin), w.heads(x.begin),
                                 has_weight ? w.head_norm : Tensor{}, 1e-6f});
    });
  }
  void write_turn(const Range& x, bool other) {
    add_step(formatted("rope {}{}", x.begin, other ? " by other frequencies" : ""), [=](World& w) {
      w.encoder.run(ops::Rope{w.heads(x.begin),
                              w.positions,
                              other ? w.other_frequencies : w.frequencies,
                              {.rotary_dim = World::kHeadDim}});
    });
  }
  void write_gate(const Range& x, Activation usual) {
    const Range gate = apart(slot(), {x});
    const Range out = chance(85) ? x : apart(slot(), {x, gate});
    const Activation activation = chance(85) ? usual : Activation::kGeluTanh;
    add_step(formatted("gate {} = {} by {}", out.begin, x.begin, gate.begin), [=](World& w) {
      w.encoder.run(
          ops::MulActivated{w.heads(out.begin), w.heads(x.begin), w.heads(gate.begin), activation});
    });
    intrude();
  }

  // One token's delta rule, the norm of its heads and their gate.
  void write_delta() {
    const Range qkv = any(3 * World::kDeltaDim);
    const Range a = any(1);
    const Range b = any(1);
    const Range out = apart(World::kDeltaDim, {qkv, a, b});
    const Range gate = apart(World::kDeltaDim, {out});
    const size_t layer = any_layer();
    const bool with_norm = chance(85);
    const bool with_gate = chance(85);
    const auto heads = [](World& w, const Range& x) {
      return w.at(x.begin, {1, 1, World::kDeltaDim});
    };
    add_step(
        formatted("gated_delta {} = {}, layer {}", out.begin, qkv.begin, layer), [=](World& w) {
          const GatedDeltaOptions options{1, 1, World::kDeltaDim, World::kDeltaDim};
          w.encoder.run(
              ops::GatedDelta{heads(w, out), w.at(qkv.begin, {1, qkv.count}), w.at(a.begin, {1, 1}),
                              w.at(b.begin, {1, 1}), w.delta_rates, w.delta_rates,
                              testing::one_sequence(w.at(qkv.begin, {1, qkv.count}).dim(0),
                                                    w.layers[layer].delta_state),
                              options});
        });
    intrude();
    if (with_norm) {
      add_step(formatted("rms_norm of delta {}", out.begin), [=](World& w) {
        w.encoder.run(ops::RmsNorm{heads(w, out), heads(w, out), w.delta_norm, 1e-6f});
      });
      intrude();
    }
    if (!with_gate) return;
    add_step(formatted("gate delta {} by {}", out.begin, gate.begin), [=](World& w) {
      w.encoder.run(
          ops::MulActivated{heads(w, out), heads(w, out), heads(w, gate), Activation::kSilu});
    });
    intrude();
  }

  // Routes, a network for every token, experts, the sum of their slots and what is added to it.
  void write_experts() {
    const int64_t n = program_.n;
    const Range x = chance(60) ? write_norm(any(slot())) : any(slot());
    const Range logits = apart(n * World::kExperts, {x});
    const Range weights = apart(n * World::kTopK, {x, logits});
    const size_t layer = any_layer();
    const bool by_router = chance(70);
    const auto router = static_cast<size_t>(random_.below(2));
    if (by_router) {
      add_step(formatted("router {} = {} by {}", logits.begin, x.begin, router), [=](World& w) {
        w.encoder.run(ops::Linear{w.at(logits.begin, {n, World::kExperts}), w.rows(x.begin),
                                  w.routers[router]});
      });
      intrude();
    }
    add_step(
        formatted("route {} from {}, layer {}", weights.begin, logits.begin, layer), [=](World& w) {
          w.encoder.run(ops::Route{{w.layers[layer].ids, w.at(weights.begin, {n, World::kTopK})},
                                   w.at(logits.begin, {n, World::kExperts}),
                                   {}});
        });
    intrude();
    const auto set = static_cast<size_t>(random_.below(2));
    const Range shared = chance(70) ? write_network(x, set) : any(slot());
    write_slots(x, weights, layer, set, shared);
  }
  Range write_network(const Range& x, size_t set) {
    const Range out = apart(slot(), {x});
    const Range gate = apart(program_.n, {out});
    const int64_t n = program_.n;
    const bool has_gate = chance(60);
    const size_t which = chance(85) ? set : 1 - set;
    add_step(formatted("gated_ffn {} = {} by {}{}", out.begin, x.begin, which,
                       has_gate ? formatted(", gate {}", gate.begin) : ""),
             [=](World& w) {
               w.encoder.run(ops::GatedFfn{w.rows(out.begin),
                                           w.rows(x.begin),
                                           w.networks[which],
                                           has_gate ? w.at(gate.begin, {n, 1}) : Tensor{},
                                           {}});
             });
    intrude();
    return out;
  }
  void write_slots(const Range& x, const Range& weights, size_t layer, size_t set,
                   const Range& shared) {
    const int64_t n = program_.n;
    const int64_t wide = World::kTopK * slot();
    const Range slots = apart(wide, {x, weights});
    const Range space = apart(wide, {x, weights, slots});
    const int64_t way = random_.below(4);  // staying, staying again, at once, in waves
    add_step(formatted("expert_ffn {} = {} through {}, layer {}, set {}, way {}", slots.begin,
                       x.begin, space.begin, layer, set, way),
             [=](World& w) {
               const Shape shape{n, World::kTopK, kCols};
               const Routes routes{w.layers[layer].ids, w.at(weights.begin, {n, World::kTopK})};
               const std::span<const ExpertWeights> all = *w.experts[set];
               if (way < 2) w.encoder.experts_stay(w.experts[set]);
               const size_t first = way == 3 ? 2 : all.size();
               for (const auto& ready : {all.first(first), all.subspan(first)}) {
                 w.encoder.run(ops::ExpertFfn{w.at(slots.begin, shape),
                                              w.at(space.begin, shape),
                                              w.rows(x.begin),
                                              routes,
                                              ready,
                                              {}});
               }
             });
    intrude();
    Range value = apart(slot(), {slots, weights});
    add_step(formatted("combine_experts {} = {} by {}", value.begin, slots.begin, weights.begin),
             [=](World& w) {
               w.encoder.run(ops::CombineExperts{
                   w.rows(value.begin),
                   w.at(slots.begin, {n, World::kTopK, kCols}),
                   {w.layers[layer].ids, w.at(weights.begin, {n, World::kTopK})}});
             });
    intrude();
    if (chance(80)) value = write_add(value, chance(85) ? shared : any(slot()));
    if (chance(80)) value = write_add(value, any(slot()));
    if (chance(70)) write_products_of_norm(value);
  }

  Random random_;
  Program program_;
};

}  // namespace

Program make_program(uint64_t seed) { return Writer(seed).write(); }

}  // namespace moeflux::conformance
