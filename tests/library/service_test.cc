// The service within another program: answers whole, in pieces, at once, aborted, refused.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <semaphore>
#include <thread>
#include <utility>

#include "tests/library/library_model.h"

namespace moeflux::testing {
namespace {

std::string question(const std::string& prompt, int tokens, bool stream = false) {
  return R"({"prompt": ")" + prompt + R"(", "max_tokens": )" + std::to_string(tokens) +
         R"(, "seed": 7, "stream": )" + (stream ? "true}" : "false}");
}

bool contains(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

/// A text that goes on for seconds, so that it has not ended before it is aborted.
std::string long_question() {
  return R"({"prompt": "There was a", "max_tokens": 4000, "stream": true, "ignore_eos": true})";
}

/// The texts of an answer's choices, one after the other.
std::string texts(const std::string& body) {
  const std::string key = R"("text":")";
  std::string all;
  for (size_t at = body.find(key); at != std::string::npos; at = body.find(key, at)) {
    at += key.size();
    size_t end = at;
    while (body[end] != '"') end += body[end] == '\\' ? 2 : 1;
    all += body.substr(at, end - at);
  }
  return all;
}

class ServiceApi : public LibraryTest {
 protected:
  Service start(const ServiceOptions& options = {}) { return take(Service::open(model_, options)); }
  static Answer ask(Service& service, std::string body, std::function<void()> on_ready = {}) {
    return take(service.submit({.method = "POST",
                                .target = "/v1/completions",
                                .body = std::move(body),
                                .on_ready = std::move(on_ready)}));
  }
  /// All of an answer; its last piece's status and headers.
  static AnswerPiece whole(Answer& answer) {
    AnswerPiece all;
    while (!all.ended) {
      AnswerPiece piece = take(answer.next());
      piece.bytes = all.bytes + piece.bytes;
      all = std::move(piece);
    }
    return all;
  }
  static AnswerPiece whole(Answer&& answer) { return whole(answer); }
  static mf_service_health health(const Service& service) { return take(service.health()); }
};

TEST_F(ServiceApi, AnswersWholeAndInPieces) {
  Service service = start({.model_name = "teller"});
  const AnswerPiece answer = whole(ask(service, question("Once upon a time", 12)));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.content_type, "application/json");
  EXPECT_TRUE(contains(answer.bytes, R"("model":"teller")")) << answer.bytes;
  EXPECT_FALSE(texts(answer.bytes).empty()) << answer.bytes;
  Answer stream = ask(service, question("Once upon a time", 12, true));
  std::string bytes;
  AnswerPiece piece;
  while (!piece.ended) {
    piece = take(stream.next());
    EXPECT_TRUE(piece.bytes.empty() || piece.bytes.ends_with("\n\n")) << "not whole events";
    bytes += piece.bytes;
  }
  EXPECT_EQ(piece.status, 200);
  EXPECT_EQ(piece.content_type, "text/event-stream; charset=utf-8");
  EXPECT_EQ(piece.keep_alive_ms, 5000);
  EXPECT_FALSE(piece.keep_alive.empty());
  EXPECT_TRUE(bytes.ends_with("data: [DONE]\n\n")) << bytes;
  EXPECT_EQ(texts(bytes), texts(answer.bytes));
  EXPECT_TRUE(take(stream.next()).ended) << "the end is not told twice";
}

TEST_F(ServiceApi, AnswersAreTheSameAtOnce) {
  Service service = start({.active_max = 3, .queue_max = 8});
  std::vector<std::string> prompts;
  std::vector<std::string> alone;
  for (int i = 0; i < 6; ++i) {
    prompts.push_back("Story " + std::to_string(i) + ". There was a");
    alone.push_back(texts(whole(ask(service, question(prompts.back(), 10))).bytes));
  }
  std::vector<Answer> answers;
  for (const std::string& prompt : prompts) {
    answers.push_back(ask(service, question(prompt, 10, true)));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(texts(whole(answers[i]).bytes), alone[i]) << prompts[i];
  }
  EXPECT_EQ(health(service).finished, 12u);
}

TEST_F(ServiceApi, TellsWhenThereIsSomethingToTake) {
  Service service = start();
  std::counting_semaphore<> ready(0);
  Answer answer = ask(service, question("There was a", 8, true), [&] { ready.release(); });
  std::string bytes;
  bool ended = false;
  while (!ended) {
    ready.acquire();
    const AnswerPiece piece = take(answer.next(0));
    bytes += piece.bytes;
    ended = piece.ended;
  }
  EXPECT_TRUE(bytes.ends_with("data: [DONE]\n\n")) << bytes;
}

TEST_F(ServiceApi, RequestsThatCannotBeAreAnswersToo) {
  Service service = start();
  const auto get = [&](const char* method, const char* target) {
    return whole(take(service.submit({.method = method, .target = target})));
  };
  EXPECT_EQ(get("GET", "/health").bytes, R"({"status":"ok"})");
  const AnswerPiece head = get("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.bytes, "");
  EXPECT_EQ(get("GET", "/v1/models?limit=2").status, 200);
  EXPECT_EQ(get("GET", "/nowhere").status, 404);
  const AnswerPiece wrong = get("GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  const std::pair<std::string, std::string> allowed = {"Allow", "POST"};
  EXPECT_EQ(std::count(wrong.headers.begin(), wrong.headers.end(), allowed), 1);
  const AnswerPiece refused = whole(ask(service, R"({"prompt": "a", "n": -1})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(contains(refused.bytes, R"("param":"n")")) << refused.bytes;
  EXPECT_EQ(whole(ask(service, "no JSON")).status, 400);
  expect_error(service.submit({.method = "GET", .target = "no path"}), Code::kInvalidArgument,
               {"no path"});
}

TEST_F(ServiceApi, AnAbortedAnswerStopsComputing) {
  const Model model = open({.context_length = 4096});
  Service service = take(Service::open(model, {.active_max = 1}));
  Answer running = ask(service, long_question());
  EXPECT_EQ(take(running.next()).status, 200);
  Answer waiting = ask(service, long_question());
  Answer last = ask(service, question("There was a", 3));
  waiting.abort();
  expect_error(waiting.next(), Code::kCancelled, {"aborted"});
  running.abort();
  expect_error(running.next(), Code::kCancelled, {"aborted"});
  EXPECT_EQ(whole(last).status, 200);
  EXPECT_EQ(health(service).cancelled, 2u);
  EXPECT_EQ(health(service).finished, 1u);
}

TEST_F(ServiceApi, ClosingEndsAnswersAndLeavesTheModel) {
  const Model model = open({.context_length = 4096});
  std::optional<Service> service = take(Service::open(model));
  std::atomic<int> calls = 0;
  Answer answer = ask(*service, long_question(), [&] { ++calls; });
  EXPECT_EQ(take(answer.next()).status, 200);
  service.reset();
  EXPECT_GE(calls, 1);
  expect_error(answer.next(), Code::kCancelled, {"aborted"});
  Service other = take(Service::open(model));
  EXPECT_EQ(whole(ask(other, question("There was a", 2))).status, 200);
}

TEST_F(ServiceApi, OutlivesItsModelAndTakesTurnsWithOtherCalls) {
  Model model = open();
  Sequence sequence = take(model.create_sequence());
  Service service = take(Service::open(model));
  { const Model closed = std::move(model); }
  Answer answer = ask(service, question("There was a", 20));
  std::string text;
  take(sequence.generate(story(), {.tokens_max = 20}, [&](std::string_view piece) {
    text += piece;
    return true;
  }));
  EXPECT_EQ(whole(answer).status, 200);
  Sequence alone = take(model_.create_sequence());
  EXPECT_EQ(text, LibraryTest::text(alone, story(), {.tokens_max = 20}));
}

TEST_F(ServiceApi, DrainingAnswersWhatHasBegunAndRefusesTheRest) {
  Service service = start();
  EXPECT_EQ(health(service).state, MF_SERVICE_READY);
  Answer begun = ask(service, question("There was a", 10));
  expect_ok(service.drain());
  EXPECT_EQ(health(service).state, MF_SERVICE_DRAINING);
  EXPECT_EQ(health(service).running, 0);
  EXPECT_EQ(take(begun.next(0)).status, 200);
  EXPECT_EQ(whole(ask(service, question("There was a", 10))).status, 503);
}

TEST_F(ServiceApi, ConversationsOutliveTheProcessWhereTheModelKeepsPrefixes) {
  const std::string folder = ::testing::TempDir() + "/service_states_" + std::to_string(getpid());
  const std::string body = question("The king had three daughters and the eldest of them was", 6);
  std::string first;
  for (const bool again : {false, true}) {
    Model model = open({.prefix_cache_bytes = 64 << 20, .prefix_cache_directory = folder});
    Service service = take(Service::open(model));
    const std::string answer = texts(whole(ask(service, body)).bytes);
    EXPECT_EQ(contains(take(service.metrics()), "prefix_cache_hits_total 0\n"), !again)
        << take(service.metrics());
    if (!again) first = answer;
    EXPECT_EQ(answer, first);
    expect_ok(service.drain());
  }
}

TEST_F(ServiceApi, OptionsAreThoseOfRequestsThatSayNothing) {
  Service greedy = start({.sampler = {.temperature = 0.0f}});
  const std::string body = R"({"prompt": "There was a", "max_tokens": 8, "seed": )";
  const std::string first = texts(whole(ask(greedy, body + "1}")).bytes);
  EXPECT_EQ(texts(whole(ask(greedy, body + "2}")).bytes), first);
  EXPECT_EQ(whole(ask(greedy, R"({"model": "other", "prompt": "a", "max_tokens": 1})")).status,
            404);
  Service any = start({.model_aliases = {"*"}});
  EXPECT_EQ(whole(ask(any, R"({"model": "other", "prompt": "a", "max_tokens": 1})")).status, 200);
  expect_error(Service::open(model_, {.active_max = -1}), Code::kInvalidArgument, {"active_max"});
  expect_error(Service::open(model_, {.queue_max = -2}), Code::kInvalidArgument, {"queue_max"});
  expect_error(Service::open(model_, {.sampler = {.mirostat = 3}}), Code::kInvalidArgument,
               {"mirostat"});
}

TEST_F(ServiceApi, GeneratesAsManyAtOnceAsFitUnlessToldOtherwise) {
  const auto slots = [](const Model& model, const ServiceOptions& options) {
    Service service = take(Service::open(model, options));
    Answer answer = take(service.submit({.method = "GET", .target = "/props"}));
    const std::string body = whole(answer).bytes;
    const std::string key = R"("total_slots":)";
    const size_t at = body.find(key);
    return at == std::string::npos ? 0 : std::stoi(body.substr(at + key.size()));
  };
  EXPECT_EQ(slots(model_, {}), 4);
  EXPECT_EQ(slots(model_, {.active_max = 3}), 3);
  const Model resident = open({.device = "emulator,memory=256"});
  EXPECT_GT(slots(resident, {}), 16);
}

TEST_F(ServiceApi, NullsAreErrors) {
  Service service = start();
  mf_request request = MF_OPTIONS(request);
  mf_answer_piece piece = MF_OPTIONS(piece);
  mf_service_health health = MF_OPTIONS(health);
  mf_service* opened = nullptr;
  mf_answer* answer = nullptr;
  mf_bytes* text = nullptr;
  const auto expect_null = [](const char* name, auto call) {
    mf_error error;
    EXPECT_EQ(call(&error), MF_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(error.message), std::string(name) + " is null");
    EXPECT_EQ(call(nullptr), MF_ERROR_INVALID_ARGUMENT);
  };
  mf_service* const s = service.get();
  expect_null("model", [&](mf_error* e) { return mf_service_open(nullptr, nullptr, &opened, e); });
  expect_null("service",
              [&](mf_error* e) { return mf_service_open(model_.get(), nullptr, nullptr, e); });
  expect_null("service",
              [&](mf_error* e) { return mf_service_submit(nullptr, &request, &answer, e); });
  expect_null("request", [&](mf_error* e) { return mf_service_submit(s, nullptr, &answer, e); });
  expect_null("answer", [&](mf_error* e) { return mf_service_submit(s, &request, nullptr, e); });
  expect_null("method", [&](mf_error* e) { return mf_service_submit(s, &request, &answer, e); });
  request.method = "GET";
  expect_null("target", [&](mf_error* e) { return mf_service_submit(s, &request, &answer, e); });
  request.target = "/health";
  request.body_size = 1;
  expect_null("body", [&](mf_error* e) { return mf_service_submit(s, &request, &answer, e); });
  request.body_size = 0;
  request.headers_count = 1;
  expect_null("headers", [&](mf_error* e) { return mf_service_submit(s, &request, &answer, e); });
  expect_null("answer", [&](mf_error* e) { return mf_answer_next(nullptr, 0, &piece, e); });
  expect_null("service", [&](mf_error* e) { return mf_service_get_health(nullptr, &health, e); });
  expect_null("mf_service_health",
              [&](mf_error* e) { return mf_service_get_health(s, nullptr, e); });
  expect_null("service", [&](mf_error* e) { return mf_service_metrics(nullptr, &text, e); });
  expect_null("text", [&](mf_error* e) { return mf_service_metrics(s, nullptr, e); });
  expect_null("service", [&](mf_error* e) { return mf_service_drain(nullptr, e); });
  EXPECT_TRUE(opened == nullptr && answer == nullptr && text == nullptr);
  mf_service_close(nullptr);
  mf_answer_abort(nullptr);
  mf_answer_free(nullptr);
  Answer whole_one = take(service.submit({.target = "/health"}));
  mf_error error;
  EXPECT_EQ(mf_answer_next(whole_one.get(), -2, &piece, &error), MF_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(mf_answer_next(whole_one.get(), 0, nullptr, &error), MF_ERROR_INVALID_ARGUMENT);
  piece.struct_size = 3;
  EXPECT_EQ(mf_answer_next(whole_one.get(), 0, &piece, &error), MF_ERROR_INVALID_ARGUMENT);
}

// Chance decides what is aborted, freed and closed when: nothing may hang or be used after its
// end.
TEST_F(ServiceApi, AnyThreadMayAskAbortAndLeave) {
  std::optional<Service> service = start({.active_max = 2, .queue_max = 64});
  std::vector<std::jthread> threads;
  std::atomic<int> answered = 0;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 12; ++i) {
        Answer answer = ask(*service, question("There was a", 6, random() % 2 == 0), [] {});
        if (random() % 3 == 0) continue;
        std::jthread aborter;
        if (random() % 3 == 0) aborter = std::jthread([&answer] { answer.abort(); });
        Result<AnswerPiece> piece = answer.next();
        while (piece && !piece->ended) piece = answer.next();
        if (piece) ++answered;
      }
    });
  }
  threads.clear();
  EXPECT_GT(answered, 0);
  const mf_service_health end = health(*service);
  EXPECT_EQ(end.waiting + end.parked, 0);
  service.reset();
}

}  // namespace
}  // namespace moeflux::testing
