// Embeddings and reranking in every interface's form.
#include "serve/embed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "chat/session.h"
#include "serve/service_test_util.h"
#include "tests/support/temp_folder.h"
#include "text/encoding/base64.h"

namespace moeflux::serve {
namespace {

class EmbedTest : public ServiceTest {
 protected:
  static Json numbers(Service& service, const Json& body) {
    const auto answer = post(service, "/v1/embeddings", body);
    EXPECT_EQ(answer->status(), 200) << answer->wait();
    return answer->json();
  }
  static void expect_problem(Service& service, const std::string& path, const Json& body,
                             int status, const std::string& param, const std::string& words) {
    const auto answer = post(service, path, body);
    EXPECT_EQ(answer->status(), status) << body.dump() << answer->wait();
    const Json error = answer->json()["error"];
    const std::string message =
        error.is_string() ? error.get<std::string>() : error["message"].get<std::string>();
    EXPECT_NE(message.find(words), std::string::npos) << message;
    if (!param.empty()) {
      EXPECT_EQ(error["param"], param) << message;
    }
  }
  static double length_of(const Json& vector) {
    double squares = 0.0;
    for (const Json& number : vector) squares += number.get<double>() * number.get<double>();
    return std::sqrt(squares);
  }
};

TEST_F(EmbedTest, TextsListsAndIdsGiveTheSameVectors) {
  const auto service = start();
  const Json one = numbers(*service, {{"input", "A fox"}});
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["data"][0]["object"], "embedding");
  const Json vector = one["data"][0]["embedding"];
  EXPECT_EQ(vector.size(), 256u);
  EXPECT_NEAR(length_of(vector), 1.0, 1e-5);
  const Json two = numbers(*service, {{"input", {"Once upon a time", "A fox"}}});
  EXPECT_EQ(two["data"][1]["index"], 1);
  EXPECT_EQ(two["data"][1]["embedding"], vector);
  const Json ids =
      post(*service, "/tokenize", {{"content", "A fox"}, {"add_special", true}})->json()["tokens"];
  EXPECT_EQ(one["usage"]["prompt_tokens"], ids.size());
  EXPECT_EQ(one["usage"]["total_tokens"], ids.size());
  EXPECT_EQ(numbers(*service, {{"input", ids}})["data"][0]["embedding"], vector);
  EXPECT_EQ(numbers(*service, {{"input", {ids, {5}}}})["data"][0]["embedding"], vector);
  EXPECT_EQ(numbers(*service, {{"input", Json::array()}})["data"].size(), 0u);
}

TEST_F(EmbedTest, LlamaCppsFormHasAListOfVectorsForEachText) {
  const auto service = start();
  const Json plain = numbers(*service, {{"input", "A fox"}})["data"][0]["embedding"];
  const auto expect_native = [&](const char* path, const char* field) {
    const Json told = post(*service, path, {{field, {"Once", "A fox"}}})->json();
    ASSERT_EQ(told.size(), 2u);
    EXPECT_EQ(told[1], (Json{{"index", 1}, {"embedding", Json::array({plain})}}));
  };
  expect_native("/embedding", "content");
  expect_native("/embedding", "input");
  expect_native("/embeddings", "content");
  expect_problem(*service, "/embedding", Json::object(), 400, "input", "input is absent");
}

TEST_F(EmbedTest, Base64IsTheSameNumbersAndDimensionsCutThem) {
  const auto service = start();
  const Json plain = numbers(*service, {{"input", "A fox"}})["data"][0]["embedding"];
  const Json packed = numbers(*service, {{"input", "A fox"}, {"encoding_format", "base64"}});
  const auto bytes = decode_base64(packed["data"][0]["embedding"].get<std::string>());
  ASSERT_TRUE(bytes);
  std::vector<float> floats(bytes->size() / sizeof(float));
  std::memcpy(floats.data(), bytes->data(), bytes->size());
  EXPECT_EQ(Json(floats), Json(plain.get<std::vector<float>>()));
  const Json cut =
      numbers(*service, {{"input", "A fox"}, {"dimensions", 16}})["data"][0]["embedding"];
  ASSERT_EQ(cut.size(), 16u);
  EXPECT_NEAR(length_of(cut), 1.0, 1e-5);
  const double scale = plain[0].get<double>() / cut[0].get<double>();
  for (size_t i = 0; i < cut.size(); ++i) {
    EXPECT_NEAR(cut[i].get<double>() * scale, plain[i].get<double>(), 1e-5);
  }
}

TEST_F(EmbedTest, ALongBatchIsOneForEachTextAndMoreThanAContextOfThem) {
  const auto service = start();
  Json texts = Json::array();
  for (int i = 0; i < 300; ++i) texts.push_back("text " + std::to_string(i % 7));
  const Json all = numbers(*service, {{"input", texts}, {"dimensions", 4}});
  ASSERT_EQ(all["data"].size(), 300u);
  for (size_t i = 7; i < 300; ++i) {
    EXPECT_EQ(all["data"][i]["embedding"], all["data"][i % 7]["embedding"]) << i;
  }
}

TEST_F(EmbedTest, ProblemsNameTheField) {
  const auto service = start();
  const std::string path = "/v1/embeddings";
  expect_problem(*service, path, Json::object(), 400, "input", "input is absent");
  expect_problem(*service, path, {{"input", 3}}, 400, "input", "input is 3");
  expect_problem(*service, path, {{"input", ""}}, 400, "input", "no tokens");
  expect_problem(*service, path, {{"input", {"a", {{"b", 1}}}}}, 400, "input[1]", "input[1]");
  expect_problem(*service, path, {{"input", {1, -1}}}, 400, "input[1]", "input[1] is -1");
  expect_problem(*service, path, {{"input", {{1, 1 << 30}}}}, 400, "input[0][1]", "below");
  expect_problem(*service, path, {{"input", {{1}, Json::array()}}}, 400, "input[1]", "no tokens");
  expect_problem(*service, path, {{"input", Json(std::vector<std::string>(2049, "a"))}}, 400,
                 "input", "at most 2048");
  expect_problem(*service, path, {{"input", "a"}, {"dimensions", 257}}, 400, "dimensions", "257");
  expect_problem(*service, path, {{"input", "a"}, {"dimensions", 0}}, 400, "dimensions", "0");
  expect_problem(*service, path, {{"input", "a"}, {"encoding_format", "int8"}}, 400,
                 "encoding_format", "int8");
  expect_problem(*service, path, {{"input", "a"}, {"prompt_name", "query"}}, 400, "prompt_name",
                 "have none");
  std::string long_text;
  for (int i = 0; i < 300; ++i) long_text += "one two ";
  expect_problem(*service, path, {{"input", {"a", long_text}}}, 400, "input[1]",
                 "the context takes 256");
  expect_problem(*service, path, {{"input", "a"}, {"model", "other"}}, 404, "model", "other");
  // Fields of llama.cpp, Jina and vLLM that ask for other vectors.
  for (const Json& asked : {Json{{"embd_normalize", -1}}, Json{{"normalized", false}},
                            Json{{"embedding_type", "binary"}}}) {
    Json body = asked;
    body["input"] = "a";
    const std::string name = asked.begin().key();
    expect_problem(*service, path, body, 400, name, "not offered");
  }
}

TEST_F(EmbedTest, AFieldThatNobodyReadsIsNamed) {
  const auto service = start();
  const Json plain = numbers(*service, {{"input", "a"}, {"user", "u"}, {"embd_normalize", 2}});
  EXPECT_FALSE(plain.contains("moeflux"));
  const Json answer = numbers(*service, {{"input", "a"}, {"input_type", "query"}});
  EXPECT_EQ(answer["moeflux"]["ignored"], Json({"input_type"}));
  EXPECT_EQ(answer["data"], plain["data"]);
}

TEST_F(EmbedTest, OllamasFormsGiveTheSameVectors) {
  const auto service = start();
  const Json expected = numbers(*service, {{"input", "A fox"}})["data"][0]["embedding"];
  const Json both =
      post(*service, "/api/embed", {{"model", "fable-20m"}, {"input", {"A fox", "b"}}})->json();
  EXPECT_EQ(both["embeddings"][0], expected);
  EXPECT_EQ(both["embeddings"].size(), 2u);
  EXPECT_GT(both["prompt_eval_count"], 0);
  const Json old =
      post(*service, "/api/embeddings", {{"model", "fable-20m"}, {"prompt", "A fox"}})->json();
  EXPECT_EQ(old["embedding"], expected);
  EXPECT_EQ(post(*service, "/api/embed", {{"model", "fable-20m"}, {"input", ""}})
                ->json()["embeddings"]
                .size(),
            0u);
  std::string long_text;
  for (int i = 0; i < 300; ++i) long_text += "one two ";
  const Json cut = post(*service, "/api/embed", {{"input", long_text}})->json();
  EXPECT_EQ(cut["prompt_eval_count"], 256);
  expect_problem(*service, "/api/embed", {{"input", long_text}, {"truncate", false}}, 400, "",
                 "the context takes 256");
  expect_problem(*service, "/api/embed", {{"input", {{1, 2}}}}, 400, "", "input[0]");
}

TEST_F(EmbedTest, TextsAreEmbeddedBesideChats) {
  const auto service = start();
  const auto text = post(*service, "/v1/completions",
                         {{"prompt", "Once upon a time"}, {"max_tokens", 40}, {"seed", 1}});
  const Json vector = numbers(*service, {{"input", "A fox"}})["data"][0]["embedding"];
  const std::string beside = text->json()["choices"][0]["text"];
  const auto again = post(*service, "/v1/completions",
                          {{"prompt", "Once upon a time"}, {"max_tokens", 40}, {"seed", 1}});
  EXPECT_EQ(again->json()["choices"][0]["text"], beside);
  EXPECT_EQ(numbers(*service, {{"input", "A fox"}})["data"][0]["embedding"], vector);
}

TEST_F(EmbedTest, AModelThatDoesNotRerankSaysSo) {
  const auto service = start();
  for (const char* path : {"/v1/rerank", "/rerank", "/v1/reranking", "/v2/rerank"}) {
    expect_problem(*service, path, {{"query", "a"}, {"documents", {"b"}}}, 501, "",
                   "does not rerank");
  }
}

// The embedded model with files that make it a reranker, of two tokens that it has.
class RerankTest : public EmbedTest {
 protected:
  static constexpr int kYes = 300;
  static constexpr int kNo = 301;

  std::unique_ptr<Service> start_reranker() {
    const std::string fable = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
    for (const auto& entry : std::filesystem::directory_iterator(fable)) {
      std::filesystem::create_symlink(entry.path(), folder_ / entry.path().filename().string());
    }
    testing::write_bytes(
        folder_ / "modules.json",
        Json::array(
            {{{"type", "sentence_transformers.base.modules.transformer.Transformer"}, {"path", ""}},
             {{"type", "sentence_transformers.cross_encoder.modules.LogitScore"},
              {"path", "1_LogitScore"}}})
            .dump());
    std::filesystem::create_directory(folder_ / "1_LogitScore");
    testing::write_bytes(folder_ / "1_LogitScore/config.json",
                         Json({{"true_token_id", kYes}, {"false_token_id", kNo}}).dump());
    auto model = open_model(
        folder_.path(),
        {.device = {.threads = 1}, .engine = {.context_length = 256, .reader_threads = 1}},
        std::move(load_model_text(folder_.path())).value());
    EXPECT_TRUE(model.ok()) << model.error().message();
    model_ = std::move(model).value();
    auto service = Service::start(model_, {.model_name = "r", .template_text = kTemplate});
    EXPECT_TRUE(service.ok()) << service.error().message();
    return std::move(service).value();
  }

  // By the logits behind what kTemplate makes of the two texts.
  double expected_score(const std::string& query, const std::string& document) {
    const std::string prompt = "query: " + query + "\ndocument: " + document + "\nassistant:";
    const auto tokens = model_->text.tokenizer->encode(prompt);
    const Turn turn(model_, {}, -1);
    const auto session = Session::create(model_).value();
    EXPECT_TRUE(session->eval(*tokens).ok());
    const auto logits = session->logits().value();
    return 1.0 / (1.0 + std::exp(static_cast<double>(logits[kNo]) - logits[kYes]));
  }

  testing::TempFolder folder_;
  std::shared_ptr<OpenModel> model_;
};

TEST_F(RerankTest, ScoresAreTheProbabilityOfYesAndComeInTheirOrder) {
  if (!has_template_engine()) GTEST_SKIP() << "hardware: a build without templates";
  const auto service = start_reranker();
  const Json documents = {"a fox in the wood", "the sea", "once upon a time", "a fox"};
  const Json answer = post(*service, "/v1/rerank",
                           {{"model", "r"},
                            {"query", "a fox"},
                            {"documents", documents},
                            {"top_n", 3},
                            {"return_documents", true},
                            {"max_tokens_per_doc", 9}})
                          ->json();
  EXPECT_EQ(answer["moeflux"]["ignored"], Json({"max_tokens_per_doc"}));
  const Json& results = answer["results"];
  ASSERT_EQ(results.size(), 3u) << answer.dump();
  EXPECT_GT(answer["usage"]["total_tokens"], 20);
  for (size_t i = 0; i < results.size(); ++i) {
    const double score = results[i]["relevance_score"];
    EXPECT_GT(score, 0.0);
    EXPECT_LT(score, 1.0);
    if (i > 0) {
      EXPECT_LE(score, results[i - 1]["relevance_score"].get<double>());
    }
    const auto index = results[i]["index"].get<size_t>();
    EXPECT_EQ(results[i]["document"]["text"], documents[index]);
    // The bits depend on the document alone.
    const Json alone = post(*service, "/rerank",
                            {{"query", "a fox"}, {"documents", {{{"text", documents[index]}}}}})
                           ->json();
    EXPECT_EQ(alone["results"][0]["relevance_score"], results[i]["relevance_score"]);
    EXPECT_FALSE(alone["results"][0].contains("document"));
    EXPECT_NEAR(score, expected_score("a fox", documents[index]), 1e-6);
  }
}

TEST_F(RerankTest, ProblemsNameTheField) {
  const auto service = start_reranker();
  const std::string path = "/v1/rerank";
  expect_problem(*service, path, {{"documents", {"a"}}}, 400, "query", "query is absent");
  expect_problem(*service, path, {{"query", "a"}}, 400, "documents", "documents is absent");
  expect_problem(*service, path, {{"query", "a"}, {"documents", Json::array()}}, 400, "documents",
                 "1 to 2048");
  expect_problem(*service, path, {{"query", "a"}, {"documents", {"b", 3}}}, 400, "documents[1]",
                 "documents[1] is 3");
  expect_problem(*service, path, {{"query", "a"}, {"documents", {"b"}}, {"top_n", 0}}, 400, "top_n",
                 "0");
  std::string long_text;
  for (int i = 0; i < 300; ++i) long_text += "one two ";
  if (!has_template_engine()) return;
  expect_problem(*service, path, {{"query", "a"}, {"documents", {"b", long_text}}}, 400,
                 "documents[1]", "exceed the context");
}

TEST(NumberList, HasTheShortestTextsAndNullForWhatIsNoNumber) {
  EXPECT_EQ(number_list(std::vector<float>{0.1f, -1.0f, 1e-10f, NAN, INFINITY}),
            "[0.1,-1,1e-10,null,null]");
}

}  // namespace
}  // namespace moeflux::serve
