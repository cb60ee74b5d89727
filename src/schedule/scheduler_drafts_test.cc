// Requests whose drafts come from a source.
#include <gtest/gtest.h>

#include <memory>

#include "chat/drafts/draft_options.h"
#include "schedule/scheduler.h"
#include "schedule/scheduler_test_util.h"

namespace moeflux {
namespace {

using Tokens = std::vector<TokenId>;

using SchedulerDrafts = SchedulerTest;

// Its text goes on as it would have without the source.
TEST_F(SchedulerDrafts, ASourceOfDraftsThatFailsIsAskedNoMore) {
  class Failing final : public DraftSource {
   public:
    explicit Failing(int& calls) : calls_(calls) {}
    Result<Draft> draft(const DraftQuery& query) override {
      EXPECT_LT(query.session.tokens().size(), query.text.size());
      if (++calls_ == 3) return make_error(ErrorCode::kIo, "the drive is gone");
      return Draft{.tokens = {query.text.back()}, .confidences = {0.5f}};
    }

   private:
    int& calls_;
  };
  int calls = 0;
  const TextRequest request = {.prompt = some_tokens(9), .tokens_max = 12};
  const Tokens expected = alone(request);
  const auto model = open_tiny();
  model->drafts = {.mode = DraftMode::kOn,
                   .make_source = [&calls] { return std::make_unique<Failing>(calls); }};
  const auto scheduler = begin(model);
  const auto receiver = std::make_shared<Collector>();
  submit(*scheduler, request, receiver);
  receiver->wait();
  EXPECT_TRUE(receiver->error.ok());
  EXPECT_EQ(receiver->tokens, expected);
  EXPECT_EQ(calls, 3);
  EXPECT_LE(receiver->statistics.drafts.drafted, 2);
  EXPECT_GT(receiver->statistics.drafts.drafting_seconds, 0.0);
}

}  // namespace
}  // namespace moeflux
