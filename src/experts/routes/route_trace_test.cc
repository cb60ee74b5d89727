#include "experts/routes/route_trace.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;

const std::string kHeader =
    "# route_trace v1\n# model=m.gguf arch=a n_layer=2 n_expert=8 n_expert_used=2\n"
    "# layer=1 expert_bytes=100 dense_bytes=5\n";
const std::string kColumnLine = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";

TEST(RouteTrace, TokensOfAPromptAreOneVisitALayerAndDecodeTokensOneEach) {
  const auto trace = RouteTrace::parse(kHeader + kColumnLine +
                                       "0,0,0,0,0,7,0.5,1,0\n0,0,0,0,1,2,0.5,0,100\n"
                                       "0,0,1,0,0,3,0.5,1,0\n0,0,1,0,1,7,0.5,0,100\n"
                                       "0,0,0,1,0,1,1,1,0\n0,0,1,1,0,1,1,1,0\n"
                                       "0,1,2,1,0,4,1,1,0\r\n0,1,3,1,0,4,1,1,0\n");
  ASSERT_TRUE(trace.ok()) << trace.error().to_string();
  ASSERT_EQ(trace->visits().size(), 4u);
  const LayerRoutes first = trace->routes(trace->visits()[0]);
  EXPECT_EQ(first.phase, StepPhase::kPrompt);
  EXPECT_EQ(first.tokens, 2);
  EXPECT_EQ(std::vector<int32_t>(first.ids.begin(), first.ids.end()),
            (std::vector<int32_t>{7, 2, 3, 7}));
  EXPECT_EQ(trace->routes(trace->visits()[3]).position, 3);
  EXPECT_EQ(trace->demand().per_token, 3);
  EXPECT_EQ(trace->demand().per_layer, 2);
  EXPECT_EQ(trace->expert_bytes(LayerId{1}), 100u);
}

TEST(RouteTrace, RefusesWhatCannotBeRightWithItsLine) {
  const auto refuse = [](const std::string& text, std::initializer_list<std::string_view> says) {
    expect_error(RouteTrace::parse(text), ErrorCode::kCorruption, says);
  };
  refuse("", {"line 0", "# route_trace v1"});
  refuse("hello\n", {"line 1", "'hello'"});
  expect_error(RouteTrace::parse("# route_trace v2\n"), ErrorCode::kUnsupported, {"v2", "v1"});
  refuse(kHeader, {"columns"});
  refuse("# route_trace v1\n" + kColumnLine, {"n_layer="});
  refuse(kHeader + "a,b\n", {"line 4", "a,b"});
  expect_error(RouteTrace::parse(kHeader + kColumnLine), ErrorCode::kFailedPrecondition,
               {"no routes"});
  const std::string rows = kHeader + kColumnLine;
  refuse(rows + "0,0,0,0,0,7,0.5,1\n", {"line 5", "9 fields"});
  refuse(rows + "0,0,0,0,0,7,0.5,1,0,0,0\n", {"9 fields"});
  refuse(rows + "0,0,0,0,0,8,0.5,1,0\n", {"expert 8", "below 8"});
  refuse(rows + "0,0,0,2,0,7,0.5,1,0\n", {"layer 2", "below 2"});
  refuse(rows + "0,2,0,0,0,7,0.5,1,0\n", {"phase 2"});
  refuse(rows + "0,0,0,0,1,7,0.5,1,0\n", {"slot 1", "count up from 0"});
  refuse(rows + "0,0,x,0,0,7,0.5,1,0\n", {"'x' in column 3"});
  refuse(rows + "0,0,-1,0,0,7,0.5,1,0\n", {"'-1' in column 3"});
  refuse(rows + "0,0,0,0,0,7,nan,1,0\n", {"'nan' in column 7"});
  refuse(rows + "0,0,0,0,0,7,1,1,0\n0,0,0,0,1,7,1,1,0\n", {"line 6", "expert 7 again"});
  refuse(rows + "0,0,0,0,0,7,1,1,0\n0,0,0,0,1,6,1,1,0\n0,0,1,0,0,1,1,1,0\n0,1,2,0,0,1,1,1,0\n",
         {"a token of 1 experts"});
  refuse("# route_trace v1\n# n_layer=0\n", {"n_layer=0"});
  refuse("# route_trace v1\n# n_expert=99999999999999999999\n", {"n_expert=9"});
  refuse("# route_trace v1\n# n_layer=4096 n_expert=65536\n" + kColumnLine,
         {"65536 experts", "at most"});
  refuse("# route_trace v1\n# n_layer=2\n# layer=2 expert_bytes=1\n", {"layer=2"});
}

TEST(RouteTrace, WhatWasWrittenIsRead) {
  const testing::TempFolder folder;
  const std::string path = folder / "routes.csv";
  auto writer = RouteTraceWriter::create(
      path,
      {.model = "a b", .num_layers = 3, .num_experts = 8, .top_k = 2, .expert_bytes = {0, 10, 20}});
  ASSERT_TRUE(writer.ok());
  const std::vector<int32_t> prompt = {1, 2, 3, 1};
  const std::vector<float> weights = {0.1f, 0.9f, 1e-9f, 0.33333334f};
  const std::vector<ExpertId> misses = {ExpertId{1}, ExpertId{3}};
  for (const int64_t position : {0, 2, 0}) {
    for (const int32_t layer : {1, 2}) {
      (*writer)->routed({.layer = LayerId{layer},
                         .phase = StepPhase::kPrompt,
                         .position = position,
                         .tokens = 2,
                         .ids = prompt,
                         .weights = weights},
                        misses);
    }
  }
  EXPECT_FALSE(path_exists(path));  // not before it is complete
  ASSERT_TRUE((*writer)->commit().ok());
  const auto trace = RouteTrace::read(path);
  ASSERT_TRUE(trace.ok()) << trace.error().to_string();
  EXPECT_EQ(trace->header().model, "a_b");
  ASSERT_EQ(trace->visits().size(), 6u);
  for (const RouteTrace::Visit& visit : trace->visits()) {
    const LayerRoutes routes = trace->routes(visit);
    EXPECT_TRUE(std::equal(routes.ids.begin(), routes.ids.end(), prompt.begin(), prompt.end()));
    EXPECT_TRUE(
        std::equal(routes.weights.begin(), routes.weights.end(), weights.begin(), weights.end()));
  }
  EXPECT_EQ(trace->visits()[2].step, 2);
  EXPECT_EQ(trace->visits()[3].turn, 0);
  EXPECT_EQ(trace->visits()[4].turn, 1);
  const auto text = read_text_file(path, 1 << 20);
  ASSERT_TRUE(text.ok());
  // Expert 1 was missing and read once, 2 was there.
  EXPECT_NE(text->find("\n0,0,0,2,0,1,0.1,0,20,1\n0,0,0,2,1,2,0.9,1,0,1\n"), std::string::npos);
  EXPECT_NE(text->find("\n0,0,1,2,1,1,0.33333334,0,0,1\n"), std::string::npos);
}

}  // namespace
}  // namespace moeflux
