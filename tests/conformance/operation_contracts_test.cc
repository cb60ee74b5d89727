// The contract of every operation, in one file: each condition broken is told.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>

#include "tests/conformance/operation_cases.h"

namespace moeflux::conformance {
namespace {

/// The tensors of an instance that are checked whatever they hold, with their names.
template <typename Op>
std::vector<std::pair<std::string, Tensor*>> tensors_of(const Op& op) {
  std::vector<std::pair<std::string, Tensor*>> tensors;
  op.operands([&](Use, std::string_view name, const auto& x) {
    if constexpr (std::is_same_v<decltype(x), const Tensor&>) {
      // Pages may be of several types and as many as there are tokens.
      if (name == "keys" || name == "values") return;
      tensors.emplace_back(name, const_cast<Tensor*>(&x));
    }
  });
  return tensors;
}

/// Fails unless `broken` breaks the instance's contract, and says so of the operation.
template <typename Op>
std::string broken_text(const Op& op, const std::string& what) {
  const Status status = op.check();
  EXPECT_FALSE(status.ok()) << Op::kName << ": " << what;
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(status.error().message().starts_with(std::string(Op::kName) + ": "))
      << status.error().message();
  return status.error().message();
}

TEST(OperationContracts, EveryOperandHasAType) {
  for_each_operation([]<typename Op>(const Op*) {
    Session s(reference());
    Lists lists;
    Op op = make_case<Op>(s, lists);
    ASSERT_TRUE(op.check().ok()) << op.check().error().message();
    for (const auto& [name, x] : tensors_of(op)) {
      const Tensor right = *x;
      x->dtype = DType::kF64;
      (void)broken_text(op, name + " of another type");
      *x = right;
    }
    EXPECT_TRUE(op.check().ok());
  });
}

// Operations whose result follows from any number of columns.
const std::set<std::string> kAnyColumns = {"soft_cap x", "top_rows x", "rope x"};

TEST(OperationContracts, EveryOperandHasExtents) {
  for_each_operation([]<typename Op>(const Op*) {
    Session s(reference());
    Lists lists;
    Op op = make_case<Op>(s, lists);
    for (const auto& [name, x] : tensors_of(op)) {
      if (kAnyColumns.contains(std::string(Op::kName) + " " + name)) continue;
      const Tensor right = *x;
      x->shape.set(x->shape.rank() - 1, x->shape.back() + 1);
      (void)broken_text(op, name + " with a column more");
      *x = right;
    }
  });
}

template <typename Op>
struct Break {
  const char* says;  // a part of the message
  std::function<void(Op&)> apply;
};

template <typename Op>
void expect_breaks(const std::vector<Break<Op>>& breaks) {
  for (const Break<Op>& b : breaks) {
    Session s(reference());
    Lists lists;
    Op op = make_case<Op>(s, lists);
    b.apply(op);
    const std::string text = broken_text(op, b.says);
    EXPECT_NE(text.find(b.says), std::string::npos) << b.says << " in: " << text;
  }
}

/// Rows further apart.
void loosen(Tensor& x) {
  for (int i = 0; i + 1 < x.shape.rank(); ++i) x.strides[static_cast<size_t>(i)] *= 2;
}

TEST(OperationContracts, RowsAndUnits) {
  expect_breaks<ops::MulActivated>(
      {{"or innermost extent 1", [](auto& op) { op.gate = op.gate.slice(1, 0, 2); }},
       {"or innermost extent 1", [](auto& op) { op.gate = op.gate.slice(0, 0, 2); }}});
  expect_breaks<ops::Glu>(
      {{"options.activation", [](auto& op) { op.options.activation = Activation::kSigmoid; }}});
  expect_breaks<ops::RmsNorm>({{"weight is", [](auto& op) { op.weight.shape = Shape{4}; }},
                               {"out is", [](auto& op) { op.out.strides[1] = 2; }}});
  expect_breaks<ops::SoftCap>({{"above 0", [](auto& op) { op.cap = 0.0f; }}});
  expect_breaks<ops::TopRows>({{"rows of values is 2, expected 3",
                                [](auto& op) {
                                  op.values = op.values.slice(0, 0, 2);
                                  op.ids = op.ids.slice(0, 0, 2);
                                }},
                               {"those of x", [](auto& op) { op.x = op.x.slice(1, 0, 3); }},
                               {"ids is", [](auto& op) { loosen(op.ids); }},
                               {"mask is", [](auto& op) { op.mask = op.ids; }}});
  expect_breaks<ops::Rope>(
      {{"at most the columns of a head", [](auto& op) { op.options.rotary_dim = 10; }},
       {"at least 1", [](auto& op) { op.options.unit = 0; }},
       {"extents of x is 2, expected 3", [](auto& op) {
          op.x = op.x.reshape({6, 8});
        }}});
}

TEST(OperationContracts, Streams) {
  expect_breaks<ops::ReadStreams>({{"extents of x",
                                    [](auto& op) {
                                      op.x = op.x.reshape({3, 32});
                                    }},
                                   {"x is [3, 4, 8] F32 with gaps", [](auto& op) { loosen(op.x); }},
                                   {"at most 5 streams",
                                    [](auto& op) {
                                      op.x.shape.set(1, 6);
                                      op.x.strides[0] = 48;
                                    }},
                                   {"null, as write is", [](auto& op) {
                                      op.gates.write = {};
                                      op.logits = op.logits.slice(1, 0, 4);
                                      op.logits.strides[0] = 4;
                                      op.options.scale = op.options.scale.slice(0, 0, 1);
                                      op.options.base = op.options.base.slice(0, 0, 4);
                                    }}});
  expect_breaks<ops::ExpandStreams>(
      {{"apart from x", [](auto& op) { op.out = op.x; }},
       {"extents of x",
        [](auto& op) {
          op.x = op.x.reshape({3, 32});
        }},
       {"x is [3, 4, 8] F32 with gaps", [](auto& op) { loosen(op.x); }}});
  expect_breaks<ops::SumGated>({{"extents of x",
                                 [](auto& op) {
                                   op.x = op.x.reshape({3, 32});
                                 }},
                                {"gates is", [](auto& op) { loosen(op.gates); }}});
  expect_breaks<ops::RootDots>({{"a is", [](auto& op) { loosen(op.a); }},
                                {"b is", [](auto& op) { loosen(op.b); }},
                                {"12 elements", [](auto& op) { op.out = op.out.slice(0, 0, 2); }}});
}

TEST(OperationContracts, SharesAndMixes) {
  expect_breaks<ops::ShareWeights>(
      {{"extents of logits", [](auto& op) { op.logits = op.logits.reshape({6}); }},
       {"extents of weights", [](auto& op) { op.weights = op.weights.reshape({12}); }},
       {"weights is", [](auto& op) { loosen(op.weights); }},
       {"out is", [](auto& op) { loosen(op.out); }}});
  expect_breaks<ops::MixBlocks>(
      {{"extents of blocks",
        [](auto& op) {
          op.blocks = op.blocks.reshape({6, 8});
        }},
       {"blocks is", [](auto& op) { loosen(op.blocks); }},
       {"last is", [](auto& op) { loosen(op.last); }},
       {"8 elements", [](auto& op) { op.query = op.query.slice(0, 0, 4); }},
       {"apart from states", [](auto& op) { op.out = op.last; }}});
  expect_breaks<ops::ClipRows>(
      {{"x is", [](auto& op) { loosen(op.x); }}, {"above 0", [](auto& op) { op.longest = 0.0f; }}});
}

TEST(OperationContracts, RoundsWholeBlocks) {
  expect_breaks<ops::RoundBlocks>(
      {{"columns in whole blocks", [](auto& op) { op.x = op.x.slice(1, 0, 48); }}});
}

TEST(OperationContracts, Products) {
  expect_breaks<ops::Embed>(
      {{"columns of out is 32, expected 31", [](auto& op) { op.table.cols = 31; }},
       {"3 elements I32", [](auto& op) { op.token_ids = op.token_ids.slice(0, 0, 2); }}});
  expect_breaks<ops::Linear>(
      {{"columns of x is 32, expected 31", [](auto& op) { op.weight.cols = 31; }},
       {"columns of out is 16, expected 15", [](auto& op) { op.weight.rows = 15; }},
       {"rows of out is 2, expected 3", [](auto& op) { op.out = op.out.slice(0, 0, 2); }},
       {"x is", [](auto& op) { loosen(op.x); }}});
  expect_breaks<ops::HeadLinear>({{"rows for every head", [](auto& op) { op.rows.row_begin = 5; }},
                                  {"columns of x", [](auto& op) { op.weight.cols = 15; }},
                                  {"extents of x", [](auto& op) {
                                     op.x = op.x.reshape({6, 16});
                                   }}});
  expect_breaks<ops::HeadLinearTransposed>(
      {{"rows for every head", [](auto& op) { op.rows.head_stride = 13; }},
       {"columns of x", [](auto& op) { op.rows.rows_per_head = 7; }},
       {"extents of x", [](auto& op) {
          op.x = op.x.reshape({6, 8});
        }}});
}

KvRows& rows_of(ops::Attention& op) { return const_cast<KvRows&>(op.sequences.front()); }

TEST(OperationContracts, Attention) {
  Session other(reference());
  expect_breaks<ops::Attention>(
      {{"extents of q",
        [](auto& op) {
          op.q = op.q.reshape({12, 32});
        }},
       {"extents of k",
        [](auto& op) {
          op.k = op.k.reshape({6, 32});
        }},
       {"heads that divide those of q",
        [](auto& op) {
          op.q = op.q.slice(1, 0, 3);
          op.out = op.out.slice(1, 0, 3);
        }},
       {"rows of sequences is 2, expected 3", [](auto& op) { rows_of(op).rows = 2; }},
       {"pages of keys is",
        [](auto& op) { const_cast<Tensor&>(rows_of(op).kv.k_pages.front()).dtype = DType::kF64; }},
       {"pages of values is",
        [](auto& op) { const_cast<Tensor&>(rows_of(op).kv.v_pages.front()).shape.set(2, 31); }},
       {"as many of keys as of values",
        [](auto& op) { rows_of(op).kv.v_pages = rows_of(op).kv.v_pages.subspan(1); }},
       {"sinks",
        [](auto& op) {
          op.options.sinks = op.q.reshape({3, 128});
        }},
       {"[rows of q, heads, extent], contiguous",
        [](auto& op) { op.options.distance_bias = op.q.slice(0, 0, 2); }},
       {"no selected and no pooled keys beside it",
        [&](auto& op) {
          op.options.distance_bias = op.q;
          op.options.selected.ids = other.zeros({3, 1, 2}, DType::kI32);
        }},
       {"room for all tokens", [](auto& op) { rows_of(op).kv.length = 6; }},
       {"room for the window",
        [](auto& op) {
          op.options.window = 7;
          rows_of(op).kv.length = 9;
        }},
       {"i32 [rows of q, groups, most]",
        [&](auto& op) {
          op.options.selected.ids = other.zeros({3, 1, 2});
        }},
       {"groups that divide the heads of k",
        [&](auto& op) {
          op.options.selected.ids = other.zeros({3, 3, 2}, DType::kI32);
        }},
       {"window with selected keys",
        [&](auto& op) {
          op.options.window = 4;
          op.options.selected.ids = other.zeros({3, 1, 2}, DType::kI32);
        }},
       {"one head of keys, which are the values", [&](auto& op) {
          op.options.pooled.keys = other.zeros({3, 1, 32});
        }}});
}

TEST(OperationContracts, PooledKeys) {
  // One head whose keys are its values, with a window, and pools of two tokens beside it.
  Session s(reference());
  Lists lists;
  ops::Attention right = make_case<ops::Attention>(s, lists);
  right.k = right.k.slice(1, 0, 1);
  right.v = {};
  const std::span<const Tensor> pages = lists.list({s.zeros({4, 1, 32}), s.zeros({4, 1, 32})});
  right.sequences = lists.one(KvRows{3, {pages, pages, 4, 0}});
  right.options.window = 4;
  right.options.pooled = {.keys = s.zeros({3, 1, 32}), .sequences = right.sequences, .unit = 2};
  ASSERT_TRUE(right.check().ok()) << right.check().error().message();
  const auto expect = [&](const char* says, const std::function<void(ops::Attention&)>& apply) {
    ops::Attention op = right;
    apply(op);
    const std::string text = broken_text(op, says);
    EXPECT_NE(text.find(says), std::string::npos) << says << " in: " << text;
  };
  expect("a window that is not chunked", [](auto& op) { op.options.chunked = true; });
  expect("a window that is not chunked", [](auto& op) { op.options.window = 0; });
  expect("no selected keys", [&](auto& op) {
    op.options.selected.ids = s.zeros({3, 1, 2}, DType::kI32);
    op.options.window = 0;
  });
  expect("pooled.keys is", [](auto& op) { op.options.pooled.keys.shape.set(2, 16); });
  expect("contiguous", [&](auto& op) {
    op.options.pooled.ids = s.zeros({3, 1, 2}, DType::kI32);
    op.options.pooled.ids.strides[0] = 4;
  });
  expect("sequences of pooled keys", [](auto& op) { op.options.pooled.sequences = {}; });
  KvRows other = right.sequences.front();
  other.kv.length = 1;
  expect("length of pooled keys",
         [&](auto& op) { op.options.pooled.sequences = std::span(&other, 1); });
  KvRows bytes = right.sequences.front();
  bytes.kv.k_pages = lists.list({s.zeros({4, 1, 36}, DType::kI8)});
  expect("the type of the tokens' keys",
         [&](auto& op) { op.options.pooled.sequences = std::span(&bytes, 1); });
}

TEST(OperationContracts, LatentAttention) {
  expect_breaks<ops::LatentAttention>(
      {{"extents of q",
        [](auto& op) {
          op.q = op.q.reshape({6, 24});
        }},
       {"extents of latent",
        [](auto& op) {
          op.latent = op.latent.reshape({3, 1, 40});
        }},
       {"rows of latent", [](auto& op) { op.latent = op.latent.slice(0, 0, 2); }},
       {"the rank and the rotary columns", [](auto& op) { op.heads.v_up.cols = 48; }},
       {"at most the rotary columns", [](auto& op) { op.heads.rope.rotary_dim = 10; }},
       {"columns of k_up", [](auto& op) { op.heads.k_up.cols = 16; }},
       {"rows of k_up a head", [](auto& op) { op.heads.k_rows.rows_per_head = 8; }}});
}

TEST(OperationContracts, SelectKeys) {
  expect_breaks<ops::SelectKeys>(
      {{"extents of q",
        [](auto& op) {
          op.q = op.q.reshape({6, 32});
        }},
       {"extents of ids",
        [](auto& op) {
          op.ids = op.ids.reshape({3, 2});
        }},
       {"groups that divide the heads of q",
        [](auto& op) {
          op.ids.shape = Shape{3, 3, 2};
          op.ids.strides = {6, 2, 1, 0};
        }},
       {"where a candidate has several tokens", [](auto& op) { op.options.unit = 2; }},
       {"within is", [](auto& op) { op.within = {.ids = op.ids.slice(0, 0, 2), .unit = 4}; }},
       {"of a multiple of the tokens",
        [](auto& op) { op.within = {.ids = op.ids, .unit = 4, .whole = true}; }},
       {"as many candidates as are chosen",
        [](auto& op) {
          op.within = {.ids = op.ids.reshape({6}).slice(0, 0, 3).reshape({3, 1, 1}), .unit = 1};
        }},
       {"at most the candidates chosen", [](auto& op) { op.options.recent = 3; }},
       {"where candidates are whole",
        [](auto& op) { op.options = {.unit = 2, .recent = 2, .whole = true}; }},
       {"rows of sequences", [](auto& op) { const_cast<KvRows&>(op.sequences.front()).rows = 2; }},
       {"f32 or f16", [](auto& op) {
          const_cast<Tensor&>(op.sequences.front().kv.k_pages.front()).dtype = DType::kI8;
        }}});
}

TEST(OperationContracts, ConvolutionsByToken) {
  expect_breaks<ops::TokenConv>(
      {{"extents of x",
        [](auto& op) {
          op.x = op.x.reshape({3, 2, 4});
        }},
       {"extents of weight", [](auto& op) { op.weight = op.weight.reshape({32}); }},
       {"extents of shares",
        [](auto& op) {
          op.shares = op.shares.reshape({3, 8});
        }},
       {"two taps", [](auto& op) { op.weight = op.weight.slice(0, 0, 1); }},
       {"groups that divide",
        [](auto& op) {
          op.shares.shape.set(1, 3);
          op.shares.strides[0] = 12;
        }},
       {"apart from x", [](auto& op) { op.out = op.x; }},
       {"state is", [](auto& op) { loosen(const_cast<Tensor&>(op.sequences.front().state)); }},
       {"rows of sequences",
        [](auto& op) { const_cast<StateRows&>(op.sequences.front()).rows = 2; }}});
}

TEST(OperationContracts, States) {
  expect_breaks<ops::PoolRows>({{"extents of x",
                                 [](auto& op) {
                                   op.x = op.x.reshape({3, 2, 4});
                                 }},
                                {"2 to 128", [](auto& op) { op.unit = 1; }},
                                {"2 to 128", [](auto& op) { op.unit = 129; }},
                                {"one where pools overlap",
                                 [](auto& op) {
                                   op.gates = {.overlaps = true};
                                   op.out.shape = Shape{3, 4};
                                   op.out.strides = {4, 1, 0, 0};
                                 }},
                                {"two halves",
                                 [](auto& op) {
                                   op.gates.overlaps = true;
                                   op.x.shape = Shape{3, 7};
                                   op.x.strides = {7, 1, 0, 0};
                                   op.out.shape = Shape{3, 3};
                                   op.out.strides = {3, 1, 0, 0};
                                 }},
                                {"rows of sequences", [](auto& op) {
                                   const_cast<StateRows&>(op.sequences.front()).rows = 2;
                                 }}});
  expect_breaks<ops::CausalConv>(
      {{"extents of x",
        [](auto& op) {
          op.x = op.x.reshape({3, 2, 4});
        }},
       {"extents of weight", [](auto& op) { op.weight = op.weight.reshape({32}); }},
       {"silu or identity", [](auto& op) { op.options.activation = Activation::kRelu; }},
       {"a tap",
        [](auto& op) {
          op.weight.shape.set(1, 0);
          op.weight.strides[0] = 0;
        }},
       {"rows of sequences",
        [](auto& op) { const_cast<StateRows&>(op.sequences.front()).rows = 2; }}});
  expect_breaks<ops::GatedDelta>(
      {{"key heads that divide", [](auto& op) { op.options.key_heads = 3; }},
       {"key heads that divide", [](auto& op) { op.options.key_heads = 0; }},
       {"extents of qkv",
        [](auto& op) {
          op.qkv = op.qkv.reshape({3, 4, 16});
        }},
       {"state is", [](auto& op) { loosen(const_cast<Tensor&>(op.sequences.front().state)); }},
       {"rows of sequences",
        [](auto& op) { const_cast<StateRows&>(op.sequences.front()).rows = 2; }}});
  expect_breaks<ops::SelectiveScan>(
      {{"groups that divide", [](auto& op) { op.options.groups = 0; }},
       {"groups that divide", [](auto& op) { op.options.groups = 4; }},
       {"extents of xbc",
        [](auto& op) {
          op.xbc = op.xbc.reshape({3, 4, 16});
        }},
       {"state is", [](auto& op) { loosen(const_cast<Tensor&>(op.sequences.front().state)); }},
       {"rows of sequences",
        [](auto& op) { const_cast<StateRows&>(op.sequences.front()).rows = 2; }}});
}

TEST(OperationContracts, Experts) {
  Session other(reference());
  expect_breaks<ops::Route>(
      {{"extents of ids", [](auto& op) { op.out.ids = op.out.ids.reshape({6}); }},
       {"as many columns as logits have",
        [&](auto& op) {
          op.out = {other.zeros({3, 9}, DType::kI32), other.zeros({3, 9})};
        }},
       {"divides the experts", [](auto& op) { op.options.num_groups = 3; }},
       {"divides the experts", [](auto& op) { op.options.num_groups = 0; }},
       {"groups with a table is 2, expected 1",
        [&](auto& op) {
          op.options.table = other.zeros({5, 2}, DType::kI32);
        }},
       {"none with a table",
        [&](auto& op) {
          op.options.table = other.zeros({5, 2}, DType::kI32);
          op.options.num_groups = 1;
        }},
       {"table is",
        [&](auto& op) {
          op.options.table = other.zeros({5, 3}, DType::kI32);
          op.options.num_groups = 1;
          op.options.correction_bias = {};
        }},
       {"token_ids is", [&](auto& op) {
          op.options.table = other.zeros({5, 2}, DType::kI32);
          op.options.num_groups = 1;
          op.options.correction_bias = {};
        }}});
  const auto expert = [](ops::ExpertFfn& op) -> ExpertWeights& {
    return const_cast<ExpertWeights&>(op.ready.front());
  };
  expect_breaks<ops::ExpertFfn>(
      {{"extents of ids", [](auto& op) { op.routes.ids = op.routes.ids.reshape({6}); }},
       {"glu.activation", [](auto& op) { op.glu.activation = Activation::kSigmoid; }},
       {"rows of ids", [](auto& op) { op.routes.ids = op.routes.ids.slice(0, 0, 2); }},
       {"rows of slots", [](auto& op) { op.slots = op.slots.slice(0, 0, 2); }},
       {"rows of intermediate", [](auto& op) { op.intermediate = op.intermediate.slice(0, 0, 2); }},
       {"columns of gate", [&](auto& op) { expert(op).gate.cols = 8; }},
       {"columns of up", [&](auto& op) { expert(op).up.cols = 8; }},
       {"rows of gate", [&](auto& op) { expert(op).gate.rows = 8; }},
       {"rows of up", [&](auto& op) { expert(op).up.rows = 8; }},
       {"columns of down", [&](auto& op) { expert(op).down.cols = 8; }},
       {"rows of down", [&](auto& op) { expert(op).down.rows = 8; }},
       {"gate_bias", [&](auto& op) { expert(op).gate_bias.shape = Shape{8}; }},
       {"up_bias", [&](auto& op) { expert(op).up_bias.shape = Shape{8}; }},
       {"down_bias", [&](auto& op) { expert(op).down_bias.shape = Shape{8}; }}});
  expect_breaks<ops::CombineExperts>(
      {{"extents of weights", [](auto& op) { op.routes.weights = op.routes.weights.reshape({6}); }},
       {"slots is", [](auto& op) { loosen(op.slots); }},
       {"rows of slots", [](auto& op) { op.slots = op.slots.slice(0, 0, 2); }},
       {"columns of slots", [](auto& op) {
          op.slots.shape = Shape{3, 2, 4};
          op.slots.strides = {8, 4, 1, 0};
        }}});
  expect_breaks<ops::GatedFfn>({{"columns of up", [](auto& op) { op.weights.up.cols = 8; }},
                                {"rows of up", [](auto& op) { op.weights.up.rows = 8; }},
                                {"columns of down", [](auto& op) { op.weights.down.cols = 8; }},
                                {"out is", [](auto& op) { op.weights.down.rows = 8; }},
                                {"x is", [](auto& op) { op.weights.gate.cols = 8; }}});
}

}  // namespace
}  // namespace moeflux::conformance
