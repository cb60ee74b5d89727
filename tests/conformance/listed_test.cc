// Attention over keys that launches of a GPU bring together: rows of a prompt and of several
// sequences at once have the bits of each row alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "base/format.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

struct ListedProblem {
  std::string name;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t groups = 1;
  int64_t dim = 32;
  int64_t v_dim = 32;
  bool values_are_keys = false;
  int64_t most = 6;
  int64_t unit = 1;
  bool whole = false;
  DType type = DType::kF16;
  bool has_sinks = false;
};

constexpr int64_t kPageTokens = 64;

/// Tokens of a text in order, of which the first `before` are there already.
struct Text {
  int64_t before = 0;
  int64_t rows = 0;
  uint64_t seed = 0;
};

struct Pages {
  std::vector<Tensor> keys;
  std::vector<Tensor> values;
};

class Listed {
 public:
  Listed(Device& device, const ListedProblem& p) : s_(device, size_t{4} << 20), p_(p) {}

  /// A step of all these texts' rows, whose earlier ones are in pages already.
  std::vector<float> attend(const std::vector<Text>& texts) {
    std::vector<Pages> pages;
    pages.reserve(texts.size());
    for (const Text& text : texts) pages.push_back(fill(text));
    int64_t n = 0;
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;
    std::vector<int32_t> ids;
    std::vector<KvRows> rows;
    for (size_t i = 0; i < texts.size(); ++i) {
      const Text& text = texts[i];
      rows.push_back({text.rows, view(pages[i], text.before)});
      n += text.rows;
      for (int64_t t = text.before; t < text.before + text.rows; ++t) {
        append(q, numbers(text, 1, t, p_.heads * p_.dim));
        append(k, numbers(text, 2, t, p_.kv_heads * p_.dim));
        append(v, numbers(text, 3, t, p_.kv_heads * p_.v_dim));
        append(ids, choices(text, t));
      }
    }
    const Tensor out = s_.zeros({n, p_.heads, p_.v_dim});
    s_.encoder().run(ops::Attention{
        out,
        s_.floats({n, p_.heads, p_.dim}, q),
        s_.floats({n, p_.kv_heads, p_.dim}, k),
        p_.values_are_keys ? Tensor{} : s_.floats({n, p_.kv_heads, p_.v_dim}, v),
        rows,
        {.scale = 0.2f,
         .sinks = p_.has_sinks ? s_.floats({p_.heads}, numbers({}, 4, 0, p_.heads)) : Tensor{},
         .selected = {s_.ints({n, p_.groups, p_.most}, ids), p_.unit, p_.whole}}});
    return s_.read(out);
  }

 private:
  template <typename T>
  static void append(std::vector<T>& all, const std::vector<T>& more) {
    all.insert(all.end(), more.begin(), more.end());
  }
  static Random random_of(const Text& text, uint64_t kind, int64_t token) {
    return Random(text.seed * 8 + kind + 1000 * static_cast<uint64_t>(token));
  }
  static std::vector<float> numbers(const Text& text, uint64_t kind, int64_t token, int64_t count) {
    return random_of(text, kind, token).floats(count, -2.0f, 2.0f);
  }
  /// The choice of a token; nobody looks at one that does not choose.
  std::vector<int32_t> choices(const Text& text, int64_t token) const {
    const int64_t recent = p_.unit > 1 ? 1 : 0;
    const int64_t candidates = (token + (p_.whole ? 1 : 0)) / p_.unit + 1;
    if (candidates < p_.most) {
      return std::vector<int32_t>(static_cast<size_t>(p_.groups * p_.most), -1);
    }
    Random random = random_of(text, 5, token);
    std::vector<int32_t> all;
    for (int64_t g = 0; g < p_.groups; ++g) {
      append(all, random.ids(p_.most - recent, candidates - recent));
      if (recent > 0) all.push_back(static_cast<int32_t>(candidates - 1));
    }
    return all;
  }
  KvView view(const Pages& pages, int64_t length) const {
    return {.k_pages = pages.keys,
            .v_pages = pages.values,
            .page_tokens = kPageTokens,
            .length = length};
  }
  /// Rows of the tokens of one page that are there already; zeros behind them.
  Tensor page(const Text& text, uint64_t kind, int64_t first, int64_t width) {
    std::vector<float> rows;
    for (int64_t t = first; t < std::min(first + kPageTokens, text.before); ++t) {
      append(rows, numbers(text, kind, t, p_.kv_heads * width));
    }
    rows.resize(static_cast<size_t>(kPageTokens * p_.kv_heads * width));
    return s_.floats({kPageTokens, p_.kv_heads, width}, rows, p_.type);
  }
  Pages fill(const Text& text) {
    Pages pages;
    for (int64_t first = 0; first < text.before + text.rows; first += kPageTokens) {
      pages.keys.push_back(page(text, 2, first, p_.dim));
      pages.values.push_back(p_.values_are_keys ? pages.keys.back().slice(2, 0, p_.v_dim)
                                                : page(text, 3, first, p_.v_dim));
    }
    return pages;
  }

  Session s_;
  const ListedProblem& p_;
};

/// Heads for each kind of kernel of attention, and each form of a choice.
std::vector<ListedProblem> problems() {
  return {
      {.name = "grouped heads"},
      {.name = "a list for each kv head", .groups = 2, .most = 3, .unit = 8},
      {.name = "candidates that are whole", .kv_heads = 1, .most = 4, .unit = 4, .whole = true},
      {.name = "sinks", .kv_heads = 4, .has_sinks = true},
      {.name = "f32 of odd sizes",
       .heads = 5,
       .kv_heads = 5,
       .dim = 20,
       .v_dim = 33,
       .type = DType::kF32},
      {.name = "wide rows that are values too",
       .heads = 20,
       .kv_heads = 1,
       .dim = 288,
       .v_dim = 256,
       .values_are_keys = true,
       .most = 70},
      {.name = "more keys than a split has", .heads = 3, .kv_heads = 1, .most = 300},
  };
}

class Rooms : public ::testing::TestWithParam<bool> {
 protected:
  /// Room for some rows at once, and for all.
  static std::unique_ptr<Device> device(uint64_t workspace_bytes) {
    return make_emulator_device({.matrix_units = GetParam(), .workspace_bytes = workspace_bytes});
  }
};

TEST_P(Rooms, RowsOfAPromptHaveTheBitsOfEachAlone) {
  for (const ListedProblem& p : problems()) {
    const std::unique_ptr<Device> narrow = device(1);
    const Text whole{.before = p.most * p.unit - 3, .rows = 11, .seed = 3};
    std::vector<float> alone;
    for (int64_t i = 0; i < whole.rows; ++i) {
      const std::vector<float> row = Listed(*narrow, p).attend({{whole.before + i, 1, whole.seed}});
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (const uint64_t room : {uint64_t{1}, uint64_t{300} << 10, uint64_t{8} << 20}) {
      const std::unique_ptr<Device> own = device(room);
      expect_same_bits(formatted("{}, {} bytes", p.name, room), alone,
                       Listed(*own, p).attend({whole}));
    }
  }
}

TEST_P(Rooms, ARowOfEachOfSeveralSequencesHasItsBitsAlone) {
  for (const ListedProblem& p : problems()) {
    const std::unique_ptr<Device> narrow = device(1);
    // The second and the last have chosen nothing; the fourth has several rows.
    const std::vector<Text> texts = {{p.most * p.unit + 40, 1, 1}, {3, 1, 2},
                                     {p.most * p.unit, 1, 3},      {p.most * p.unit + 9, 5, 4},
                                     {p.most * p.unit + 77, 1, 5}, {0, 1, 6}};
    std::vector<float> alone;
    for (const Text& text : texts) {
      const std::vector<float> rows = Listed(*narrow, p).attend({text});
      alone.insert(alone.end(), rows.begin(), rows.end());
    }
    for (const uint64_t room : {uint64_t{1}, uint64_t{300} << 10, uint64_t{8} << 20}) {
      const std::unique_ptr<Device> own = device(room);
      expect_same_bits(formatted("{}, {} bytes", p.name, room), alone,
                       Listed(*own, p).attend(texts));
    }
  }
}

// A launch of attention waits for a gate. Here it has tables of an earlier step, and those of the
// next sequence begin anew where they lie.
TEST(AttentionThatWaits, HasItsTablesYet) {
  const std::unique_ptr<Device> device = make_emulator_device({.workspace_bytes = 1});
  Session s(*device);
  const Shape rows{4, 1, 32};
  const auto page = [&] { return s.zeros({16, 1, 32}); };
  const std::vector<Tensor> pages{page(), page()};
  const std::span<const Tensor> own(pages);
  const Tensor out = s.zeros(rows);
  std::vector<float> expected;
  for (uint64_t step = 0; step < 20; ++step) {
    const auto numbers = [&](uint64_t seed) {
      std::vector<float> both = Random(seed).floats(2 * 32);
      const std::vector<float> other = Random(seed + 10 * step).floats(2 * 32);
      both.insert(both.end(), other.begin(), other.end());
      return s.floats(rows, both);
    };
    std::vector<Tensor> others;  // tables of several sizes
    while (others.size() < 2 * (step % 5 + 1)) others.push_back(page());
    const std::span<const Tensor> next(others);
    const auto of = [](std::span<const Tensor> kv) {
      const size_t each = kv.size() / 2;
      return KvRows{2, {.k_pages = kv.first(each), .v_pages = kv.last(each), .page_tokens = 16}};
    };
    const KvRows sequences[] = {of(own), of(next)};
    s.encoder().run(ops::Attention{out, numbers(1), numbers(2), numbers(3), sequences, {}});
    const std::vector<float> got = s.read(out.slice(0, 0, 2));
    if (step == 0) expected = got;
    expect_same_bits(formatted("step {}", step), expected, got);
  }
}

INSTANTIATE_TEST_SUITE_P(ListedKeys, Rooms, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& units) {
                           return units.param ? "OnMatrixUnits" : "WithoutMatrixUnits";
                         });

}  // namespace
}  // namespace moeflux::conformance
