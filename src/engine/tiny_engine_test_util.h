// A tiny model in a folder of its own and engines on it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moeflux {

class TinyEngineTest : public ::testing::Test {
 protected:
  static constexpr int64_t kVocab = testing::TinyModel::kVocab;
  using Tokens = std::vector<TokenId>;

  TinyEngineTest() {
    testing::make_tiny_model({.experts = testing::ExpertNames::kSeparate}).write(folder_.path());
  }

  /// Another one in its place, both of whose layers forget at any position.
  void write_attention_model() {
    testing::TinyModel model = testing::make_tiny_model({});
    model.config["layer_types"] = {"full_attention", "full_attention"};
    std::map<std::string, testing::TinyTensor> tensors;
    for (const auto& [name, tensor] : model.tensors) {
      if (name.find("linear_attn") != std::string::npos) continue;
      tensors[name] = tensor;
      const size_t at = name.find("layers.1.self_attn");
      if (at == std::string::npos) continue;
      tensors[std::string(name).replace(at, 8, "layers.0")] = tensor;
    }
    model.tensors = std::move(tensors);
    model.write(folder_.path());
  }

  std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(folder_.path(), *device_, options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    return std::move(engine).value();
  }
  static std::unique_ptr<Sequence> start(Engine& engine) {
    auto sequence = engine.create_sequence();
    EXPECT_TRUE(sequence.ok());
    return std::move(sequence).value();
  }

  /// Logits of every row the sink saw. A failure is a gtest failure.
  static std::vector<float> eval(Engine& engine, Sequence& sequence, const Tokens& tokens,
                                 LogitsMode mode) {
    std::vector<float> logits;
    const Status done =
        engine.eval(sequence, tokens, {.logits = mode}, [&](int64_t, std::span<const float> rows) {
          logits.insert(logits.end(), rows.begin(), rows.end());
          return Status();
        });
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    return logits;
  }
  /// Logits of every token, in a fresh sequence.
  static std::vector<float> all_logits(Engine& engine, const Tokens& tokens) {
    return eval(engine, *start(engine), tokens, LogitsMode::kAll);
  }

  static Tokens some_tokens(size_t n) {
    Tokens tokens(n);
    for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<TokenId>(i * 37 % kVocab);
    return tokens;
  }
  static std::vector<float> last_row(const std::vector<float>& logits) {
    return {logits.end() - kVocab, logits.end()};
  }

  testing::TempFolder folder_;
  std::unique_ptr<Device> device_ = testing::make_test_device({});
};

}  // namespace moeflux
