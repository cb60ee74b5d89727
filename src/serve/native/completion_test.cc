// The requests of llama.cpp's own server tests to POST /completion and /infill, and more.
#include "serve/native/completion.h"

#include "base/format.h"
#include "chat/drafts/draft_test_util.h"
#include "constraint/constraint.h"
#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

class NativeCompletion : public ServiceTest {
 protected:
  static Json ask(int tokens) {
    return {{"prompt", "Once upon a time"}, {"n_predict", tokens}, {"seed", 7}};
  }
  /// Frames of a stream that no [DONE] ends.
  static std::vector<Json> frames(MemoryResponse& response) {
    std::vector<Json> frames;
    const std::string text = response.wait();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find("\n\n", begin);
      EXPECT_EQ(text.substr(begin, 6), "data: ");
      frames.push_back(Json::parse(text.substr(begin + 6, end - begin - 6)));
      begin = end + 2;
    }
    return frames;
  }
};

TEST_F(NativeCompletion, HasTheFieldsOfLlamaCpp) {
  const auto service = start();
  Json body = ask(8);
  const Json answer = post(*service, "/completion", body)->json();
  EXPECT_EQ(answer["timings"]["predicted_n"], 8);
  EXPECT_EQ(answer["tokens_predicted"], 8);
  EXPECT_EQ(answer["tokens_evaluated"], answer["timings"]["prompt_n"]);
  EXPECT_EQ(answer["stop"], true);
  EXPECT_EQ(answer["stop_type"], "limit");
  EXPECT_EQ(answer["stopping_word"], "");
  EXPECT_EQ(answer["truncated"], false);
  EXPECT_TRUE(answer["has_new_line"].is_boolean());
  EXPECT_EQ(answer["tokens"], Json::array());
  EXPECT_EQ(answer["prompt"], "Once upon a time");
  EXPECT_EQ(answer["generation_settings"]["n_predict"], 8);
  EXPECT_EQ(answer["generation_settings"]["seed"], 7);
  EXPECT_FALSE(answer.contains("completion_probabilities"));
  Json openai = {{"prompt", "Once upon a time"}, {"max_tokens", 8}, {"seed", 7}};
  EXPECT_EQ(answer["content"],
            post(*service, "/v1/completions", openai)->json()["choices"][0]["text"]);
  body["return_tokens"] = true;
  const Json tokens = post(*service, "/completion", body)->json()["tokens"];
  ASSERT_EQ(tokens.size(), 8u);
  EXPECT_EQ(post(*service, "/detokenize", {{"tokens", tokens}})->json()["content"],
            answer["content"]);
}

TEST_F(NativeCompletion, AStreamSaysTheSameInPieces) {
  const auto service = start();
  Json body = ask(8);
  body["n_probs"] = 3;
  const Json whole = post(*service, "/completion", body)->json();
  ASSERT_EQ(whole["completion_probabilities"].size(), 8u);
  for (const Json& token : whole["completion_probabilities"]) {
    EXPECT_LE(token["logprob"].get<double>(), 0.0);
    EXPECT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_TRUE(token["bytes"].is_array() && token["token"].is_string() && token.contains("id"));
  }
  body["stream"] = true;
  const auto stream = post(*service, "/completion", body);
  const std::vector<Json> pieces = frames(*stream);
  std::string content;
  ASSERT_EQ(pieces.size(), 9u);
  for (const Json& piece : pieces) {
    content += piece["content"].get<std::string>();
    EXPECT_EQ(piece["stop"], &piece == &pieces.back());
    if (piece["stop"] == true) continue;
    EXPECT_EQ(piece["tokens"].size(), 1u);
    EXPECT_EQ(piece["completion_probabilities"].size(), 1u);
  }
  EXPECT_EQ(Json(content), whole["content"]);
  EXPECT_EQ(pieces.back()["timings"]["predicted_n"], 8);
  EXPECT_EQ(pieces.back()["generation_settings"]["stream"], true);
}

TEST_F(NativeCompletion, TellsWhatWasDrawnFrom) {
  const auto service = start();
  Json body = ask(5);
  body["n_probs"] = 10;
  body["post_sampling_probs"] = true;
  for (const int temperature : {0, 1}) {
    body["temperature"] = temperature;
    body["top_k"] = 3;
    body["min_p"] = 0;
    body["top_p"] = 1;
    const Json all = post(*service, "/completion", body)->json()["completion_probabilities"];
    ASSERT_EQ(all.size(), 5u);
    for (const Json& token : all) {
      EXPECT_GT(token["prob"].get<double>(), 0.0);
      ASSERT_LE(token["top_probs"].size(), temperature == 0 ? 1u : 3u);
      double sum = 0;
      for (const Json& top : token["top_probs"]) sum += top["prob"].get<double>();
      EXPECT_NEAR(sum, 1.0, 1e-5);
      EXPECT_TRUE(temperature != 0 || token["top_probs"][0]["prob"] == 1.0) << token;
    }
  }
}

TEST_F(NativeCompletion, TakesTextIdsAndBothOneOrSeveral) {
  const auto service = start();
  const Json ids = post(*service, "/tokenize", {{"content", "Once upon a time"}})->json()["tokens"];
  const auto answer = [&](const Json& prompt) {
    Json body = ask(4);
    body["prompt"] = prompt;
    return post(*service, "/completion", body)->json();
  };
  const Json text = answer("Once upon a time")["content"];
  EXPECT_EQ(answer(ids)["content"], text);
  const Json several = answer(Json::array({ids, "Once upon a time"}));
  ASSERT_EQ(several.size(), 2u) << several;
  EXPECT_EQ(several[0]["content"], text);
  EXPECT_EQ(several[1]["content"], text);
  EXPECT_EQ(several[1]["index"], 1);
  EXPECT_EQ(answer({{"prompt_string", "Once upon a time"}})["content"], text);
  EXPECT_EQ(answer({{"prompt_string", 3}})["error"]["param"], "prompt");
  EXPECT_EQ(answer(Json::array({"Once upon a time"})).size(), 1u);
  Json mixed = Json::array({1, 2});
  mixed.push_back("Once upon");
  mixed.push_back(3);
  EXPECT_TRUE(answer(mixed)["content"].is_string());
  EXPECT_EQ(answer(Json::array())["error"]["param"], "prompt");
  EXPECT_EQ(answer(Json::array({true}))["error"]["param"], "prompt");
}

TEST_F(NativeCompletion, SaysWhatEndedIt) {
  const auto service = start();
  Json body = ask(40);
  const auto text = post(*service, "/completion", body)->json()["content"].get<std::string>();
  const std::string word = text.substr(text.find(' ', 8) + 1, 4);
  body["stop"] = Json::array({word});
  const Json answer = post(*service, "/completion", body)->json();
  EXPECT_EQ(answer["stop_type"], "word");
  EXPECT_EQ(answer["stopping_word"], word);
  EXPECT_EQ(answer["content"], text.substr(0, text.find(word)));
  body["include_stop_str_in_output"] = true;
  EXPECT_EQ(post(*service, "/completion", body)->json()["content"],
            text.substr(0, text.find(word) + word.size()));
}

TEST_F(NativeCompletion, GivesTheFieldsThatAreAskedForAlone) {
  const auto service = start();
  Json body = ask(4);
  body["response_fields"] = {"content", "generation_settings/n_predict", "prompt"};
  const Json answer = post(*service, "/completion", body)->json();
  EXPECT_EQ(answer.size(), 3u) << answer;
  EXPECT_EQ(answer["generation_settings/n_predict"], 4);
}

TEST_F(NativeCompletion, IsWhatCompletionsWithoutAVersionAre) {
  const auto service = start();
  const Json answer = post(*service, "/completion", ask(6))->json();
  for (const char* path : {"/completions", "//completions/"}) {
    EXPECT_EQ(post(*service, path, ask(6))->json()["content"], answer["content"]) << path;
  }
  const Json openai = post(*service, "/v1/completions", ask(6))->json();
  EXPECT_EQ(openai["choices"][0]["text"], answer["content"]);
  EXPECT_FALSE(openai.contains("content"));
}

TEST_F(NativeCompletion, SettingsNameTokensThatAreNeverDrawn) {
  const auto service = start();
  Json body = ask(2);
  const auto biases = [&] {
    return post(*service, "/completion", body)->json()["generation_settings"]["logit_bias"];
  };
  EXPECT_EQ(biases(), Json::array());
  body["ignore_eos"] = true;
  const Json ends = biases();
  ASSERT_FALSE(ends.empty());
  for (const Json& one : ends) EXPECT_TRUE(one["token"].is_number() && one["bias"].is_null());
  body["ignore_eos"] = false;
  body["logit_bias"] = Json::array({Json::array({7, -100}), Json::array({8, 1.5})});
  EXPECT_EQ(biases(), Json::parse(R"([{"token":7,"bias":null},{"token":8,"bias":1.5}])"));
  const Json word = post(*service, "/tokenize", {{"content", " fox"}})->json()["tokens"];
  body["logit_bias"] = {{" fox", 2}};
  const Json told = biases();
  ASSERT_EQ(told.size(), word.size());
  for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i]["token"], word[i]);
}

TEST_F(NativeCompletion, AStreamTellsProgressAndTimingsWhereItIsAsked) {
  const auto service = start();
  Json body = ask(4);
  body["stream"] = true;
  for (const Json& piece : frames(*post(*service, "/completion", body))) {
    EXPECT_FALSE(piece.contains("prompt_progress"));
    EXPECT_EQ(piece.contains("timings"), piece["stop"]) << piece;
  }
  body["return_progress"] = body["timings_per_token"] = true;
  std::vector<Json> told;
  int64_t tokens = 0;
  for (const Json& piece : frames(*post(*service, "/completion", body))) {
    if (piece.contains("prompt_progress")) {
      told.push_back(piece);
      EXPECT_EQ(piece["content"], "");
    } else if (piece["stop"] == false) {
      EXPECT_EQ(piece["timings"]["predicted_n"], ++tokens);
    }
  }
  EXPECT_EQ(tokens, 4);
  ASSERT_GE(told.size(), 2u);
  const Json& timings = told.front()["timings"];
  for (const char* name : {"prompt_n", "prompt_ms", "predicted_n", "predicted_ms"}) {
    EXPECT_EQ(timings[name], 0) << name;
  }
  EXPECT_EQ(told.back()["prompt_progress"]["processed"], told.back()["prompt_progress"]["total"]);
  // OpenAI's too.
  int progress = 0;
  int timed = 0;
  for (const Json& frame : post(*service, "/v1/completions", body)->frames()) {
    progress += frame.contains("prompt_progress") ? 1 : 0;
    timed += frame.contains("timings") ? 1 : 0;
  }
  EXPECT_GE(progress, 1);
  EXPECT_GE(timed, 2);
}

// Every fourth step has a draft of three tokens, which a model of stories hardly writes.
TEST_F(NativeCompletion, TimingsAndMetricsTellOfDrafts) {
  const Json without = post(*start(), "/completion", ask(12))->json();
  EXPECT_FALSE(without["timings"].contains("draft_n"));
  const auto service =
      start({}, {.mode = DraftMode::kOn,
                 .make_source = source_of([](std::span<const TokenId> text, int64_t most) {
                   return text.size() % 4 == 0 && most >= 3 ? std::vector<TokenId>{1, 2, 3}
                                                            : std::vector<TokenId>();
                 })});
  const Json with = post(*service, "/completion", ask(12))->json();
  EXPECT_EQ(with["content"], without["content"]);
  const Json& timings = with["timings"];
  EXPECT_GE(timings["draft_n"], 6);
  EXPECT_LT(timings["draft_n_accepted"], timings["draft_n"]);
  EXPECT_GT(timings["draft_gain"], 0.0);
  const std::string metrics = get(*service, "/metrics")->wait();
  for (const char* engine : {"llamacpp", "vllm"}) {
    const std::string line = formatted("\n{}:spec_decode_num_draft_tokens_total {}\n", engine,
                                       timings["draft_n"].get<int64_t>());
    EXPECT_NE(metrics.find(line), std::string::npos) << metrics;
  }
  EXPECT_NE(metrics.find("\nmoeflux_draft_gain "), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\nmoeflux_draft_source_seconds_total "), std::string::npos) << metrics;
}

TEST_F(NativeCompletion, SchemasGiveTheSameTextWithDrafts) {
  if (testing::without_engine()) return;
  Json body = ask(100);
  body["json_schema"] = {{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", 30}};
  const Json without = post(*start(), "/completion", body)->json();
  const auto service = start({}, {.mode = DraftMode::kOn, .match_min = 1});
  const Json with = post(*service, "/completion", body)->json();
  EXPECT_EQ(with["content"], without["content"]);
  EXPECT_GT(with["timings"]["draft_n"], 0);
}

TEST_F(NativeCompletion, TheRateIsOfStepsBehindTheFirstToken) {
  const auto service = start();
  const Json one = post(*service, "/completion", ask(1))->json()["timings"];
  EXPECT_EQ(one["predicted_n"], 1);
  EXPECT_EQ(one["predicted_per_second"], 0.0);
  EXPECT_EQ(one["predicted_per_token_ms"], 0.0);
  const Json some = post(*service, "/completion", ask(8))->json()["timings"];
  EXPECT_NEAR(some["predicted_per_second"].get<double>(),
              1e3 / some["predicted_ms"].get<double>() * 7, 1e-6);
}

TEST_F(NativeCompletion, BiasesWordsAndTokens) {
  const auto service = start();
  Json body = ask(12);
  body["temperature"] = 0;
  const Json first = post(*service, "/completion", body)->json();
  body["return_tokens"] = true;
  const Json token = post(*service, "/completion", body)->json()["tokens"][0];
  for (const Json& bias :
       {Json::array({Json::array({token, -100})}), Json::array({Json::array({token, false})}),
        Json{{token.dump(), -100}}}) {
    body["logit_bias"] = bias;
    EXPECT_NE(post(*service, "/completion", body)->json()["tokens"][0], token) << bias;
  }
  const Json word = post(*service, "/detokenize", {{"tokens", Json::array({token})}})->json();
  body["logit_bias"] = Json::array({Json::array({word["content"], -100})});
  EXPECT_NE(post(*service, "/completion", body)->json()["tokens"][0], token);
}

// llama.vim sends these with every request, the second where lines are indented.
TEST_F(NativeCompletion, WishesOfEditorsAboutTheEndAreNoReasonToRefuse) {
  const auto service = start();
  Json body = ask(4);
  body.update({{"t_max_prompt_ms", 500}, {"t_max_predict_ms", 1000}, {"n_indent", 4}});
  body["samplers"] = Json::array({"top_k", "top_p", "infill"});
  const Json answer = post(*service, "/completion", body)->json();
  EXPECT_EQ(answer["tokens_predicted"], 4) << answer;
  EXPECT_EQ(answer["moeflux"]["ignored"], Json::array({"t_max_prompt_ms", "t_max_predict_ms"}));
}

// SillyTavern names llama.cpp's fields and those of other servers at once.
TEST_F(NativeCompletion, NamesOfOtherServersThatAskForNothingMoreAreTaken) {
  const auto service = start();
  Json body = ask(4);
  const Json plain = post(*service, "/completion", body)->json();
  body.update({{"max_new_tokens", 9}, {"max_tokens", 9}, {"adaptive_target", -0.01}});
  body["samplers"] = {"penalties", "dry",   "top_n_sigma", "top_k",       "tfs_z",     "typical_p",
                      "top_p",     "min_p", "xtc",         "temperature", "adaptive_p"};
  EXPECT_EQ(post(*service, "/completion", body)->json()["content"], plain["content"]);
  for (const char* name : {"n_predict", "max_tokens"}) body.erase(name);
  EXPECT_EQ(post(*service, "/completion", body)->json()["tokens_predicted"], 9);
}

TEST_F(NativeCompletion, ALineThatIsIndentedByLessEndsTheText) {
  if (!has_constraints()) GTEST_SKIP() << "hardware: a build without constraints";
  const auto service = start();
  Json body = ask(20);
  body.update({{"regex", "a\n    b\n c"}, {"n_indent", 2}});
  const Json answer = post(*service, "/completion", body)->json();
  EXPECT_EQ(answer["content"], "a\n    b\n ") << answer;
  EXPECT_EQ(answer["stop_type"], "limit");
  EXPECT_EQ(answer["generation_settings"]["n_indent"], 2);
  body["stream"] = true;
  std::string told;
  for (const Json& piece : frames(*post(*service, "/completion", body))) {
    told += piece["content"].get<std::string>();
  }
  EXPECT_EQ(told, "a\n    b\n ");
  body["n_indent"] = 1;
  body["stream"] = false;
  EXPECT_EQ(post(*service, "/completion", body)->json()["content"], "a\n    b\n c");
}

TEST_F(NativeCompletion, InfillNeedsTokensForIt) {
  const auto service = start();
  const Json body = {{"input_prefix", "int main() {\n"}, {"input_suffix", "}\n"}, {"prompt", ""}};
  const auto answer = post(*service, "/infill", body);
  EXPECT_EQ(answer->status(), 501);
  EXPECT_NE(answer->json()["error"]["message"].get<std::string>().find("fim_prefix"),
            std::string::npos);
  EXPECT_EQ(post(*service, "/infill", {{"input_prefix", "a"}})->json()["error"]["param"],
            "input_suffix");
  Json extra = body;
  extra["input_extra"] = 3;
  EXPECT_EQ(post(*service, "/infill", extra)->json()["error"]["param"], "input_extra");
}

}  // namespace
}  // namespace moeflux::serve
