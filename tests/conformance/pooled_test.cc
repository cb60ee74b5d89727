// Attention to a window of tokens and to keys of pools, in one softmax, against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// A sequence of `length` tokens in steps of `chunks`.
struct PooledProblem {
  int64_t heads = 4;
  int64_t dim = 32;
  int64_t window = 8;
  int64_t unit = 4;
  int64_t most = 0;  // pools that a token attends to; 0: all of them
  int64_t page_tokens = 16;
  int64_t pages = 4;  // of the window's ring
  DType type = DType::kF32;
  bool has_sinks = true;
  Chunks chunks = {50};

  int64_t length() const {
    int64_t sum = 0;
    for (const int64_t rows : chunks) sum += rows;
    return sum;
  }
};

struct PooledData {
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> pools;  // of each token, so far
  std::vector<float> sinks;
  std::vector<int32_t> ids;
};

PooledData make_data(const PooledProblem& p) {
  Random random(static_cast<uint64_t>(p.dim + p.unit + p.most));
  PooledData data;
  data.q = random.floats(p.length() * p.heads * p.dim, -2.0f, 2.0f);
  data.k = random.floats(p.length() * p.dim, -2.0f, 2.0f);
  data.pools = random.floats(p.length() * p.dim, -2.0f, 2.0f);
  data.sinks = random.floats(p.heads, -2.0f, 2.0f);
  for (int64_t t = 0; t < p.length(); ++t) {
    const std::vector<int32_t> row = random.ids(p.most, (t + 1) / p.unit);
    data.ids.insert(data.ids.end(), row.begin(), row.end());
  }
  return data;
}

/// The state and the tensors of a sequence.
struct Sequence {
  std::vector<Tensor> window;
  std::vector<Tensor> entries;
  Tensor q;
  Tensor k;
  Tensor pools;
  Tensor ids;
  Tensor out;

  Sequence(Session& s, const PooledProblem& p, const PooledData& data) {
    for (int64_t i = 0; i < p.pages; ++i) {
      window.push_back(s.zeros({p.page_tokens, 1, p.dim}, p.type));
    }
    for (int64_t i = 0; i * p.page_tokens < p.length(); ++i) {
      entries.push_back(s.zeros({p.page_tokens, 1, p.dim / p.unit}, p.type));
    }
    q = s.floats({p.length(), p.heads, p.dim}, data.q);
    k = s.floats({p.length(), 1, p.dim}, data.k);
    pools = s.floats({p.length(), 1, p.dim}, data.pools);
    if (p.most > 0) ids = s.ints({p.length(), 1, p.most}, data.ids);
    out = s.zeros({p.length(), p.heads, p.dim});
  }
  KvRows rows(const std::vector<Tensor>& pages, const PooledProblem& p, int64_t at,
              int64_t count) const {
    return {count,
            {.k_pages = pages, .v_pages = pages, .page_tokens = p.page_tokens, .length = at}};
  }
};

std::vector<float> run(Device& device, const PooledProblem& p, const PooledData& data) {
  Session s(device, size_t{4} << 20);
  const Sequence own(s, p, data);
  const Tensor sinks = p.has_sinks ? s.floats({p.heads}, data.sinks) : Tensor{};
  int64_t at = 0;
  for (const int64_t rows : p.chunks) {
    const KvRows window = own.rows(own.window, p, at, rows);
    const KvRows entries = own.rows(own.entries, p, at, rows);
    s.encoder().run(ops::Attention{
        own.out.slice(0, at, rows),
        own.q.slice(0, at, rows),
        own.k.slice(0, at, rows),
        Tensor{},
        {&window, 1},
        {.scale = 0.2f,
         .window = p.window,
         .sinks = sinks,
         .pooled = {.keys = own.pools.slice(0, at, rows),
                    .sequences = {&entries, 1},
                    .unit = p.unit,
                    .ids = own.ids.is_null() ? Tensor{} : own.ids.slice(0, at, rows)}}});
    at += rows;
  }
  return s.read(own.out);
}

void expect_pooled(const std::string& what, const PooledProblem& p) {
  const PooledData data = make_data(p);
  const std::vector<float> expected = run(reference(), p, data);
  for (const NamedDevice& device : devices()) {
    if (p.type != DType::kF32 && !device.device->takes_narrow_cache()) continue;
    const std::vector<float> got = run(*device.device, p, data);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 3e-4f) << what << ", " << device.name << ", element " << i;
    }
  }
}

TEST(PooledAttention, MatchesTheReference) {
  expect_pooled("all pools", {});
  expect_pooled("some pools", {.most = 3});
  expect_pooled("one pool", {.most = 1, .chunks = {1, 20, 1, 9}});
  expect_pooled("no sinks", {.most = 2, .has_sinks = false});
  expect_pooled("f16", {.most = 3, .type = DType::kF16});
  expect_pooled("odd widths", {.heads = 5, .dim = 20, .window = 3, .unit = 2, .chunks = {33}});
  expect_pooled("a ring that turns", {.window = 16, .pages = 2, .chunks = {16, 16, 16, 16, 1}});
  expect_pooled("pools as long as pages",
                {.heads = 2, .dim = 64, .unit = 16, .pages = 6, .chunks = {70}});
  expect_pooled("wide rows", {.heads = 20, .dim = 512, .unit = 4, .most = 5, .chunks = {24}});
  expect_pooled("wide rows of f16",
                {.heads = 20, .dim = 512, .most = 5, .type = DType::kF16, .chunks = {24}});
}

TEST(PooledAttention, ATokensResultIsItsOwn) {
  PooledProblem p{.most = 4};
  const PooledData data = make_data(p);
  for (const NamedDevice* device : one_device_per_family()) {
    const std::vector<float> expected = run(*device->device, p, data);
    for (const Chunks& chunks : {one_by_one(50), Chunks{3, 1, 30, 16}, Chunks{17, 33}}) {
      PooledProblem cut = p;
      cut.chunks = chunks;
      expect_same_bits(device->name, expected, run(*device->device, cut, data));
    }
  }
}

TEST(PooledAttention, SequencesDoNotMix) {
  const PooledProblem p{.most = 3, .chunks = {30}};
  const PooledProblem other{.most = 3, .chunks = {21}};
  const PooledData data = make_data(p);
  PooledData more = make_data(other);
  std::ranges::reverse(more.k);
  more.sinks = data.sinks;
  for (const NamedDevice* device : one_device_per_family()) {
    const std::vector<float> first = run(*device->device, p, data);
    const std::vector<float> second = run(*device->device, other, more);
    Session s(*device->device, size_t{4} << 20);
    const Sequence a(s, p, data);
    const Sequence b(s, other, more);
    const auto both = [&](const std::vector<float>& x, const std::vector<float>& y) {
      std::vector<float> all = x;
      all.insert(all.end(), y.begin(), y.end());
      return all;
    };
    std::vector<int32_t> ids = data.ids;
    ids.insert(ids.end(), more.ids.begin(), more.ids.end());
    const KvRows windows[] = {a.rows(a.window, p, 0, 30), b.rows(b.window, other, 0, 21)};
    const KvRows entries[] = {a.rows(a.entries, p, 0, 30), b.rows(b.entries, other, 0, 21)};
    const Tensor out = s.zeros({51, p.heads, p.dim});
    s.encoder().run(
        ops::Attention{out,
                       s.floats({51, p.heads, p.dim}, both(data.q, more.q)),
                       s.floats({51, 1, p.dim}, both(data.k, more.k)),
                       Tensor{},
                       windows,
                       {.scale = 0.2f,
                        .window = p.window,
                        .sinks = s.floats({p.heads}, data.sinks),
                        .pooled = {.keys = s.floats({51, 1, p.dim}, both(data.pools, more.pools)),
                                   .sequences = entries,
                                   .unit = p.unit,
                                   .ids = s.ints({51, 1, p.most}, ids)}}});
    expect_same_bits(device->name, both(first, second), s.read(out));
  }
}

TEST(PooledAttention, ASequenceWithoutRowsHasNone) {
  const PooledProblem p{.chunks = {30}};
  const PooledData data = make_data(p);
  const auto run_beside_none = [&](Device& device) {
    Session s(device, size_t{4} << 20);
    const Sequence own(s, p, data);
    const Sequence other(s, p, data);
    // In the middle of a pool.
    const KvRows windows[] = {own.rows(own.window, p, 0, 30), other.rows(other.window, p, 3, 0)};
    const KvRows entries[] = {own.rows(own.entries, p, 0, 30), other.rows(other.entries, p, 3, 0)};
    s.encoder().run(
        ops::Attention{own.out,
                       own.q,
                       own.k,
                       Tensor{},
                       windows,
                       {.scale = 0.2f,
                        .window = p.window,
                        .sinks = s.floats({p.heads}, data.sinks),
                        .pooled = {.keys = own.pools, .sequences = entries, .unit = p.unit}}});
    return s.read(own.out);
  };
  expect_same_bits("reference", run(reference(), p, data), run_beside_none(reference()));
  for (const NamedDevice* device : one_device_per_family()) {
    expect_same_bits(device->name, run(*device->device, p, data), run_beside_none(*device->device));
  }
}

}  // namespace
}  // namespace moeflux::conformance
