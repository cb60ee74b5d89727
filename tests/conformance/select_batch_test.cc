// The choice of keys in steps with a token of each of several sequences: each chooses what it does
// alone, and all together are as many launches as one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// Sequences that have `before` tokens each, then one more at every step.
struct Company {
  std::vector<int64_t> before;
  int64_t steps = 3;
  int64_t heads = 4;
  int64_t groups = 1;
  int64_t dim = 16;
  int64_t most = 5;
  SelectOptions options = {};
  int64_t page_tokens = 8;
  int64_t ring = 0;  // pages of a sequence; 0: as many as it needs
  DType page_type = DType::kF32;
  bool has_weights = true;
  /// Small multiples of a power of two: all sums are exact, and many scores are equal.
  bool are_exact = true;
  /// Not 0: so many larger candidates are chosen first, and then among what lies in them.
  int64_t outer = 0;
  int64_t outer_unit = 8;
  int64_t odd_pages = -1;  // the sequence whose pages lie unlike the others'
};

constexpr int32_t kUntouched = -7;

/// The launches of a step, on devices that count them.
struct StepLaunches {
  size_t writes = 0;
  size_t scores = 0;
  size_t masks = 0;
  size_t choices = 0;
  bool operator==(const StepLaunches&) const = default;
};
StepLaunches launches_of(const testing::LaunchCounts* counts) {
  if (counts == nullptr) return {};
  const auto of = [&](gpu::KernelId kernel) {
    return counts->of_kernel[static_cast<size_t>(kernel)];
  };
  return {of(gpu::KernelId::write_heads),
          of(gpu::KernelId::index_scores) + of(gpu::KernelId::index_scores_f16) +
              of(gpu::KernelId::mma_index_scores) + of(gpu::KernelId::mma_index_scores_f16),
          of(gpu::KernelId::mask_candidates), of(gpu::KernelId::choose_best)};
}

std::vector<float> halves(Random& random, int64_t count, bool are_exact) {
  std::vector<float> values = random.floats(count, -2.0f, 2.0f);
  for (float& value : values) value = are_exact ? std::round(value) / 2.0f : value;
  return values;
}

/// One of the sequences on a device: its rows, and what it has stored.
struct Member {
  Tensor q;
  Tensor k;
  Tensor weights;
  std::vector<Tensor> pages;
};

class Choices {
 public:
  Choices(Device& device, const Company& company) : c_(company), s_(device) {
    for (size_t i = 0; i < c_.before.size(); ++i) {
      members_.push_back(make(i));
      store(i);
    }
  }
  /// The choices of these sequences at a step, in one operation. Rows that do not choose are left.
  std::vector<int32_t> step(std::span<const size_t> who, int64_t step) {
    const auto n = static_cast<int64_t>(who.size());
    std::vector<Tensor> q, k, weights;
    std::vector<KvRows> rows;
    for (const size_t i : who) {
      const int64_t at = c_.before[i] + step;
      q.push_back(members_[i].q.slice(0, at, 1));
      k.push_back(members_[i].k.slice(0, at, 1));
      weights.push_back(members_[i].weights.slice(0, at, 1));
      rows.push_back(rows_of(i, at, 1));
    }
    const Tensor all_q = together(q);
    const Tensor all_k = together(k);
    const Tensor all_weights = together(weights);
    const Tensor ids = untouched({n, c_.groups, c_.most});
    KeySelection within;
    if (c_.outer > 0) {
      const SelectOptions outer{.unit = c_.outer_unit, .recent = 1};
      within = outer.selection(untouched({n, 1, c_.outer}));
      s_.encoder().run(ops::SelectKeys{within.ids, all_q, all_k, all_weights, rows, outer});
    }
    s_.encoder().run(ops::SelectKeys{ids, all_q, all_k, c_.has_weights ? all_weights : Tensor{},
                                     rows, c_.options, within});
    return s_.read_ints(ids);
  }

 private:
  Member make(size_t i) {
    Random random(70 + i);
    const int64_t n = c_.before[i] + c_.steps;
    Member m{s_.floats({n, c_.heads, c_.dim}, halves(random, n * c_.heads * c_.dim, c_.are_exact)),
             s_.floats({n, 1, c_.dim}, halves(random, n * c_.dim, c_.are_exact)),
             s_.floats({n, c_.heads}, halves(random, n * c_.heads, c_.are_exact)),
             {}};
    const int64_t width = c_.dim / c_.options.key_tokens();
    const int64_t pages = c_.ring > 0 ? c_.ring : (n + c_.page_tokens - 1) / c_.page_tokens;
    const bool is_odd = static_cast<int64_t>(i) == c_.odd_pages;
    for (int64_t page = 0; page < pages; ++page) {
      m.pages.push_back(
          is_odd ? s_.zeros({c_.page_tokens, 1, width + 4}, c_.page_type).slice(2, 4, width)
                 : s_.zeros({c_.page_tokens, 1, width}, c_.page_type));
    }
    return m;
  }
  KvRows rows_of(size_t i, int64_t at, int64_t rows) const {
    return {rows, {.k_pages = members_[i].pages, .page_tokens = c_.page_tokens, .length = at}};
  }
  // A page at a time, as places of a ring must not be written twice in an operation. Tokens that
  // may choose as many as there are have no choice.
  void store(size_t i) {
    const Member& m = members_[i];
    for (int64_t at = 0; at < c_.before[i]; at += c_.page_tokens) {
      const int64_t n = std::min(c_.page_tokens, c_.before[i] - at);
      const KvRows rows = rows_of(i, at, n);
      s_.encoder().run(
          ops::SelectKeys{s_.zeros({n, c_.groups, c_.before[i] + c_.options.recent}, DType::kI32),
                          m.q.slice(0, at, n),
                          m.k.slice(0, at, n),
                          m.weights.slice(0, at, n),
                          {&rows, 1},
                          c_.options});
    }
  }
  Tensor together(const std::vector<Tensor>& rows) {
    const Tensor& row = rows.front();
    const auto n = static_cast<int64_t>(rows.size());
    const Tensor all =
        s_.zeros(row.shape.rank() == 2 ? Shape{n, row.dim(1)} : Shape{n, row.dim(1), row.dim(2)});
    for (size_t i = 0; i < rows.size(); ++i) {
      s_.encoder().run(ops::Copy{all.slice(0, static_cast<int64_t>(i), 1), rows[i]});
    }
    return all;
  }
  Tensor untouched(const Shape& shape) {
    return s_.ints(shape,
                   std::vector<int32_t>(static_cast<size_t>(shape.num_elements()), kUntouched));
  }

  const Company& c_;
  Session s_;
  std::vector<Member> members_;
};

/// Steps of each sequence alone, arranged as those of all together are.
std::vector<std::vector<int32_t>> alone(Device& device, const Company& c) {
  Choices choices(device, c);
  std::vector<std::vector<int32_t>> steps(static_cast<size_t>(c.steps));
  for (size_t step = 0; step < steps.size(); ++step) {
    for (size_t i = 0; i < c.before.size(); ++i) {
      const std::vector<int32_t> own = choices.step({&i, 1}, static_cast<int64_t>(step));
      steps[step].insert(steps[step].end(), own.begin(), own.end());
    }
  }
  return steps;
}

std::vector<size_t> all_of(const Company& c) {
  std::vector<size_t> who(c.before.size());
  for (size_t i = 0; i < who.size(); ++i) who[i] = i;
  return who;
}

/// Every device's steps of all together are its steps of each alone; where scores are exact, the
/// reference's.
void expect_alike(const std::string& what, const Company& c) {
  const std::vector<std::vector<int32_t>> reference_steps = alone(reference(), c);
  for (const NamedDevice& device : devices()) {
    const std::vector<std::vector<int32_t>> expected =
        c.are_exact ? reference_steps : alone(*device.device, c);
    Choices choices(*device.device, c);
    const std::vector<size_t> who = all_of(c);
    for (int64_t step = 0; step < c.steps; ++step) {
      EXPECT_EQ(choices.step(who, step), expected[static_cast<size_t>(step)])
          << what << ", " << device.name << ", step " << step;
    }
  }
}

/// Sequences that have no choice, that get one while they go on, and that have long had one.
std::vector<int64_t> mixed(int64_t dense_end) {
  return {dense_end + 9, 0, dense_end - 2, dense_end + 40, 3, dense_end, dense_end + 1};
}

TEST(SelectKeysTogether, ChooseWhatEachDoesAlone) {
  expect_alike("tokens", {.before = mixed(5)});
  expect_alike(
      "tokens, f16, no weights",
      {.before = mixed(5), .heads = 18, .dim = 20, .page_type = DType::kF16, .has_weights = false});
  expect_alike("scores of many roundings", {.before = mixed(5), .heads = 3, .are_exact = false});
  expect_alike("blocks of tokens for each group of heads", {.before = mixed(12),
                                                            .steps = 6,
                                                            .heads = 6,
                                                            .groups = 3,
                                                            .most = 3,
                                                            .options = {.unit = 4, .recent = 2},
                                                            .has_weights = false});
}

TEST(SelectKeysTogether, ChooseWholeCandidates) {
  for (const DType type : {DType::kF32, DType::kF16}) {
    for (const int64_t recent : {0, 1}) {
      const SelectOptions options{.unit = 4, .recent = recent, .whole = true};
      expect_alike(formatted("{} of the last, {}", recent, dtype_name(type)),
                   {.before = mixed(recent > 0 ? 11 : 15),
                    .steps = 6,
                    .most = 3,
                    .options = options,
                    .page_type = type});
    }
  }
  // Rows of tokens begin on no boundary of 16 bytes, those of keys do.
  expect_alike("wide keys of narrow rows", {.before = mixed(23),
                                            .steps = 3,
                                            .dim = 24,
                                            .most = 3,
                                            .options = {.unit = 8, .recent = 1, .whole = true},
                                            .are_exact = false});
}

TEST(SelectKeysTogether, ChooseWithinEarlierChoices) {
  Company c{.before = mixed(24), .steps = 4, .heads = 3, .dim = 24, .most = 5, .outer = 3};
  expect_alike("among tokens", c);
  c.options.whole = true;
  c.page_type = DType::kF16;
  expect_alike("among whole candidates", c);
}

TEST(SelectKeysTogether, HaveRingsOfPages) {
  expect_alike("tokens in rings", {.before = {60, 3, 33, 24}, .steps = 9, .ring = 3});
  expect_alike("whole candidates in rings", {.before = {60, 3, 33, 24},
                                             .steps = 9,
                                             .most = 3,
                                             .options = {.unit = 4, .recent = 1, .whole = true},
                                             .ring = 3,
                                             .page_type = DType::kF16});
}

// More scores than there is room for at a time.
TEST(SelectKeysTogether, ChooseInBlocksOfRows) {
  std::vector<int64_t> before(19, 11);
  before[2] = 700;
  before[13] = 900;
  before[18] = 40;
  Company c{.before = before, .steps = 1, .heads = 4, .groups = 4, .dim = 4, .most = 6};
  c.has_weights = false;
  c.page_tokens = 256;
  expect_alike("many", c);
  c.groups = 1;
  c.outer = 2;
  c.outer_unit = 16;
  c.before.resize(40, 20);
  expect_alike("many within earlier choices", c);
}

TEST(SelectKeysTogether, PagesThatLieUnlikeAreReadOneByOne) {
  expect_alike("odd pages", {.before = mixed(5), .odd_pages = 3});
}

TEST(SelectKeysTogether, AreAsManyLaunchesAsOne) {
  for (const NamedDevice* device : devices_with_units()) {
    const auto step_launches = [&](const Company& c) {
      Choices choices(*device->device, c);
      const std::vector<size_t> who = all_of(c);
      const StepLaunches before = launches_of(device->launches.get());
      (void)choices.step(who, 0);
      const StepLaunches after = launches_of(device->launches.get());
      return StepLaunches{after.writes - before.writes, after.scores - before.scores,
                          after.masks - before.masks, after.choices - before.choices};
    };
    for (const bool whole : {false, true}) {
      Company c{.before = mixed(24), .most = 5};
      c.options = {.unit = whole ? 4 : 1, .recent = whole ? 1 : 0, .whole = whole};
      EXPECT_EQ(step_launches(c), (StepLaunches{1, 1, 0, 1})) << device->name;
      c.before = {3, 4, 2};
      EXPECT_EQ(step_launches(c), (StepLaunches{1, 0, 0, 0})) << device->name << ", no choice";
    }
    Company c{.before = mixed(24), .most = 5, .outer = 3};
    EXPECT_EQ(step_launches(c), (StepLaunches{2, 2, 1, 2})) << device->name << ", within";
  }
}

// Keys of a prompt's whole candidates, and the one that is none yet.
TEST(SelectKeysTogether, KeysOfAPromptAreALaunch) {
  for (const NamedDevice* device : devices_with_units()) {
    for (const int64_t rest : {0, 1}) {
      const SelectOptions options{.unit = 4, .recent = 1, .whole = true};
      const int64_t n = 60 + rest;
      Session s(*device->device);
      const std::vector<Tensor> pages(1, s.zeros({64, 1, 4}));
      const KvRows rows{n, {.k_pages = pages, .page_tokens = 64}};
      const size_t before = launches_of(device->launches.get()).writes;
      s.encoder().run(ops::SelectKeys{s.zeros({n, 1, n}, DType::kI32),
                                      s.zeros({n, 2, 16}),
                                      s.zeros({n, 1, 16}),
                                      {},
                                      {&rows, 1},
                                      options});
      EXPECT_EQ(launches_of(device->launches.get()).writes - before, 1 + static_cast<size_t>(rest))
          << device->name;
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
