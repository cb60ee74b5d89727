// head_linear and head_linear_transposed against the reference, in every storage format.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

/// The weights that one output element of one head sums over.
std::vector<float> weights_of(const HeadProblem& p, int64_t head, int64_t element) {
  const int64_t first = head * p.rows.head_stride + p.rows.row_begin;
  std::vector<float> values;
  for (int64_t i = 0; i < p.in_width(); ++i) {
    const int64_t row = first + (p.transposed ? i : element);
    const int64_t col = p.transposed ? element : i;
    values.push_back(p.weight.decoded[static_cast<size_t>(row * p.weight.cols + col)]);
  }
  return values;
}

std::vector<float> head_tolerance(const HeadProblem& p) {
  const int64_t in_row = p.in_width() + HeadProblem::kGap;
  const int64_t out_row = p.out_width() + HeadProblem::kGap;
  // Elements around the outputs must stay as they are.
  std::vector<float> tolerance(static_cast<size_t>(p.n * p.heads * out_row), 0.0f);
  for (int64_t h = 0; h < p.heads; ++h) {
    for (int64_t o = 0; o < p.out_width(); ++o) {
      const std::vector<float> w = weights_of(p, h, o);
      for (int64_t t = 0; t < p.n; ++t) {
        const auto begin = static_cast<size_t>((t * p.heads + h) * in_row + HeadProblem::kGap);
        tolerance[static_cast<size_t>((t * p.heads + h) * out_row + 1 + o)] =
            dot_tolerance(w, std::span(p.x).subspan(begin, w.size()));
      }
    }
  }
  return tolerance;
}

void check_heads(const HeadProblem& p) {
  const std::string label =
      formatted("{} {}, {} heads of {} rows at {} of {}, {} columns, {} tokens",
                p.weight.format.to_string(), dtype_name(p.weight.format.dtype), p.heads,
                p.rows.rows_per_head, p.rows.row_begin, p.rows.head_stride, p.weight.cols, p.n);
  compare_with_reference({p.transposed ? "head_linear_t" : "head_linear", label,
                          p.out_width() + HeadProblem::kGap, head_tolerance(p)},
                         [&](Session& s) { return p.run(s, {p.n}); });
}

TEST(HeadLinear, MatchesTheReferenceInEveryFormat) {
  Random random(70);
  for (const QuantFormat& format : all_formats()) {
    for (const bool transposed : {false, true}) {
      const HeadRows rows{.head_stride = 21, .row_begin = 4, .rows_per_head = 13};
      check_heads(HeadProblem::make(random, format, rows, 3, 384, 3, transposed));
    }
  }
}

TEST(HeadLinear, MatchesTheReferenceAtAnyTokenCount) {
  Random random(71);
  for (const QuantFormat& format : some_formats()) {
    for (const int64_t n : {1, 2, 5, 31, 33, 70}) {
      for (const bool transposed : {false, true}) {
        const HeadRows rows{.head_stride = 24, .row_begin = 0, .rows_per_head = 16};
        check_heads(HeadProblem::make(random, format, rows, 2, 256, n, transposed));
      }
    }
  }
}

// Tiles of tokens and of columns with rests, rows of any start, heads that do not fit at once, and
// columns that all lanes have or some have not.
TEST(HeadLinear, MatchesTheReferenceWithManyTokens) {
  Random random(74);
  for (const QuantFormat& format : block_and_some_formats()) {
    for (const bool transposed : {false, true}) {
      const HeadRows rows{.head_stride = 80, .row_begin = 3, .rows_per_head = 72};
      check_heads(HeadProblem::make(random, format, rows, 3, 256, 67, transposed));
    }
  }
  for (const QuantFormat& format : some_formats()) {
    for (const int64_t cols : {128, 384, 640}) {
      for (const bool transposed : {false, true}) {
        const HeadRows rows{.head_stride = 16, .row_begin = 0, .rows_per_head = 16};
        check_heads(HeadProblem::make(random, format, rows, 5, cols, 33, transposed));
      }
    }
  }
}

TEST(HeadLinear, MatchesTheReferenceAtTheSizesOfLatentAttention) {
  Random random(72);
  for (const QuantFormat& format :
       {QuantFormat::plain(DType::kBf16), QuantFormat::affine(4, 64, DType::kBf16),
        QuantFormat::affine(8, 64, DType::kBf16)}) {
    for (const int64_t n : {1, 6}) {
      const HeadRows keys{.head_stride = 256, .row_begin = 0, .rows_per_head = 128};
      const HeadRows values{.head_stride = 256, .row_begin = 128, .rows_per_head = 128};
      check_heads(HeadProblem::make(random, format, keys, 4, 512, n, true));
      check_heads(HeadProblem::make(random, format, values, 4, 512, n, false));
    }
  }
}

TEST(HeadLinear, PlainMatricesMayHaveAnyWidth) {
  Random random(73);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int64_t cols : {1, 5, 31, 33, 100, 255, 257, 300, 520}) {
      for (const int64_t per_head : {1, 7, 8, 9}) {
        for (const bool transposed : {false, true}) {
          const HeadRows rows{.head_stride = 11, .row_begin = 2, .rows_per_head = per_head};
          check_heads(
              HeadProblem::make(random, QuantFormat::plain(dtype), rows, 2, cols, 3, transposed));
        }
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
