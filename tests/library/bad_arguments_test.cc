// Every function of the C interface with arguments that cannot be right: an error, never a crash.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>

#include "tests/library/library_model.h"

namespace moeflux::testing {
namespace {

class BadArguments : public LibraryTest {
 protected:
  BadArguments() {
    mf_error error;
    EXPECT_EQ(mf_sequence_create(model_.get(), &sequence_, &error), MF_OK) << error.message;
    EXPECT_EQ(mf_sequence_eval(sequence_, &token_, 1, nullptr, &error), MF_OK) << error.message;
  }
  ~BadArguments() override { mf_sequence_free(sequence_); }

  /// The call fails with the code and says why; without an mf_error it fails the same.
  static void expect_code(mf_code expected, const char* piece,
                          const std::function<mf_code(mf_error*)>& call) {
    mf_error error;
    std::memset(&error, 0x7f, sizeof(error));
    EXPECT_EQ(call(&error), expected);
    EXPECT_EQ(error.code, expected) << error.message;
    EXPECT_NE(std::string(error.message).find(piece), std::string::npos)
        << "'" << piece << "' is not in: " << error.message;
    EXPECT_EQ(call(nullptr), expected);
  }
  static void expect_invalid(const char* piece, const std::function<mf_code(mf_error*)>& call) {
    expect_code(MF_ERROR_INVALID_ARGUMENT, piece, call);
  }

  mf_sequence* sequence_ = nullptr;
  int32_t token_ = 1;
  std::vector<float> row_ = std::vector<float>(static_cast<size_t>(model_.info().vocab_size));
  size_t count_ = 0;
  int64_t position_ = 0;
  uint64_t id_ = 0;
};

TEST_F(BadArguments, NullModelsAndSequences) {
  int32_t* const token = &token_;
  mf_model_info info = MF_OPTIONS(info);
  mf_metrics metrics = MF_OPTIONS(metrics);
  mf_sampler_options sampler = MF_OPTIONS(sampler);
  mf_sequence* made = nullptr;
  mf_bytes* bytes = nullptr;
  const std::vector<std::function<mf_code(mf_error*)>> of_model = {
      [&](mf_error* e) { return mf_model_get_info(nullptr, &info, e); },
      [&](mf_error* e) { return mf_model_get_metrics(nullptr, &metrics, e); },
      [&](mf_error* e) { return mf_model_stop_tokens(nullptr, token, 1, &count_, e); },
      [&](mf_error* e) { return mf_model_tokenize(nullptr, "a", 1, 0, token, 1, &count_, e); },
      [&](mf_error* e) {
        return mf_model_detokenize(nullptr, token, 1, 0, nullptr, 0, &count_, e);
      },
      [&](mf_error* e) { return mf_model_default_sampler(nullptr, &sampler, e); },
      [&](mf_error* e) { return mf_sequence_create(nullptr, &made, e); }};
  for (const auto& call : of_model) expect_invalid("model is null", call);
  const std::vector<std::function<mf_code(mf_error*)>> of_sequence = {
      [&](mf_error* e) { return mf_sequence_position(nullptr, &position_, e); },
      [&](mf_error* e) { return mf_sequence_set_turn_timeout(nullptr, 0, e); },
      [&](mf_error* e) { return mf_sequence_tokens(nullptr, token, 1, &count_, e); },
      [&](mf_error* e) { return mf_sequence_eval(nullptr, token, 1, nullptr, e); },
      [&](mf_error* e) { return mf_sequence_logits(nullptr, row_.data(), row_.size(), e); },
      [&](mf_error* e) { return mf_sequence_set_sampler(nullptr, nullptr, e); },
      [&](mf_error* e) { return mf_sequence_sample(nullptr, token, e); },
      [&](mf_error* e) { return mf_sequence_generate(nullptr, token, 1, nullptr, nullptr, e); },
      [&](mf_error* e) { return mf_sequence_checkpoint(nullptr, &id_, e); },
      [&](mf_error* e) { return mf_sequence_restore(nullptr, 1, e); },
      [&](mf_error* e) { return mf_sequence_drop(nullptr, 1, e); },
      [&](mf_error* e) { return mf_sequence_truncate(nullptr, 0, e); },
      [&](mf_error* e) { return mf_sequence_fork(nullptr, &made, e); },
      [&](mf_error* e) { return mf_sequence_save(nullptr, &bytes, e); },
      [&](mf_error* e) { return mf_sequence_load(nullptr, "", 0, e); },
      [&](mf_error* e) { return mf_sequence_save_file(nullptr, "x", e); },
      [&](mf_error* e) { return mf_sequence_load_file(nullptr, "x", e); },
      [&](mf_error* e) { return mf_sequence_reuse_prefix(nullptr, token, 1, &position_, e); },
      [&](mf_error* e) { return mf_sequence_keep_prefix(nullptr, e); }};
  for (const auto& call : of_sequence) expect_invalid("sequence is null", call);
  mf_model_close(nullptr);
  mf_sequence_free(nullptr);
  mf_sequence_cancel(nullptr);
  mf_bytes_free(nullptr);
  EXPECT_EQ(mf_bytes_data(nullptr), nullptr);
  EXPECT_EQ(mf_bytes_size(nullptr), 0u);
}

TEST_F(BadArguments, NullPlacesToStore) {
  mf_model* model = model_.get();
  expect_invalid("count",
                 [&](mf_error* e) { return mf_model_stop_tokens(model, nullptr, 0, nullptr, e); });
  expect_invalid("tokens", [&](mf_error* e) {
    return mf_model_tokenize(model, "a", 1, 0, nullptr, 9, &count_, e);
  });
  expect_invalid("text", [&](mf_error* e) {
    return mf_model_tokenize(model, nullptr, 1, 0, &token_, 1, &count_, e);
  });
  expect_invalid("bytes", [&](mf_error* e) {
    return mf_model_detokenize(model, &token_, 1, 0, nullptr, 0, nullptr, e);
  });
  expect_invalid("tokens", [&](mf_error* e) {
    return mf_model_detokenize(model, nullptr, 1, 0, nullptr, 0, &count_, e);
  });
  expect_invalid("mf_model_info",
                 [&](mf_error* e) { return mf_model_get_info(model, nullptr, e); });
  expect_invalid("mf_metrics",
                 [&](mf_error* e) { return mf_model_get_metrics(model, nullptr, e); });
  expect_invalid("mf_sampler_options",
                 [&](mf_error* e) { return mf_model_default_sampler(model, nullptr, e); });
  expect_invalid("sequence", [&](mf_error* e) { return mf_sequence_create(model, nullptr, e); });
  expect_invalid("position",
                 [&](mf_error* e) { return mf_sequence_position(sequence_, nullptr, e); });
  expect_invalid(
      "count", [&](mf_error* e) { return mf_sequence_tokens(sequence_, nullptr, 0, nullptr, e); });
  expect_invalid("tokens",
                 [&](mf_error* e) { return mf_sequence_eval(sequence_, nullptr, 3, nullptr, e); });
  expect_invalid("logits", [&](mf_error* e) {
    return mf_sequence_logits(sequence_, nullptr, row_.size(), e);
  });
  expect_invalid("token", [&](mf_error* e) { return mf_sequence_sample(sequence_, nullptr, e); });
  expect_invalid("prompt", [&](mf_error* e) {
    return mf_sequence_generate(sequence_, nullptr, 1, nullptr, nullptr, e);
  });
  expect_invalid("checkpoint",
                 [&](mf_error* e) { return mf_sequence_checkpoint(sequence_, nullptr, e); });
  expect_invalid("fork", [&](mf_error* e) { return mf_sequence_fork(sequence_, nullptr, e); });
  expect_invalid("bytes", [&](mf_error* e) { return mf_sequence_save(sequence_, nullptr, e); });
  expect_invalid("data", [&](mf_error* e) { return mf_sequence_load(sequence_, nullptr, 9, e); });
  expect_invalid("path", [&](mf_error* e) { return mf_sequence_save_file(sequence_, nullptr, e); });
  expect_invalid("path", [&](mf_error* e) { return mf_sequence_load_file(sequence_, nullptr, e); });
  expect_invalid("reused", [&](mf_error* e) {
    return mf_sequence_reuse_prefix(sequence_, &token_, 1, nullptr, e);
  });
}

TEST_F(BadArguments, BuffersThatAreTooSmallSayWhatIsNeeded) {
  int32_t tokens[2];
  char text[2];
  expect_code(MF_ERROR_BUFFER_TOO_SMALL, "buffer of 2", [&](mf_error* e) {
    return mf_model_tokenize(model_.get(), "Once upon a time", 16, 0, tokens, 2, &count_, e);
  });
  EXPECT_GT(count_, 2u);
  const int32_t many[4] = {400, 401, 402, 403};
  expect_code(MF_ERROR_BUFFER_TOO_SMALL, "bytes of text", [&](mf_error* e) {
    return mf_model_detokenize(model_.get(), many, 4, 0, text, 2, &count_, e);
  });
  expect_code(MF_ERROR_BUFFER_TOO_SMALL, "1 tokens",
              [&](mf_error* e) { return mf_sequence_tokens(sequence_, nullptr, 0, &count_, e); });
  EXPECT_EQ(count_, 1u);
  expect_code(MF_ERROR_BUFFER_TOO_SMALL, "logits", [&](mf_error* e) {
    return mf_sequence_logits(sequence_, row_.data(), row_.size() - 1, e);
  });
  mf_eval_options options = MF_OPTIONS(options);
  options.logits = row_.data();
  options.logits_count = row_.size() - 1;
  expect_code(MF_ERROR_BUFFER_TOO_SMALL, "1 rows",
              [&](mf_error* e) { return mf_sequence_eval(sequence_, &token_, 1, &options, e); });
  options.logits_count = row_.size() + 1;
  expect_invalid("1 rows",
                 [&](mf_error* e) { return mf_sequence_eval(sequence_, &token_, 1, &options, e); });
}

TEST_F(BadArguments, StructsOfSizesThatCannotBe) {
  for (const size_t size : {size_t{0}, size_t{8}, size_t{1} << 40}) {
    mf_model_options open = {};
    open.struct_size = size;
    mf_model* opened = nullptr;
    expect_invalid("struct_size",
                   [&](mf_error* e) { return mf_model_open(fable().c_str(), &open, &opened, e); });
    mf_metrics metrics = {};
    metrics.struct_size = size;
    expect_invalid("struct_size",
                   [&](mf_error* e) { return mf_model_get_metrics(model_.get(), &metrics, e); });
    mf_generate_result result = {};
    result.struct_size = size;
    expect_invalid("struct_size", [&](mf_error* e) {
      return mf_sequence_generate(sequence_, nullptr, 0, nullptr, &result, e);
    });
    mf_eval_options eval = {};
    eval.struct_size = size;
    expect_invalid("struct_size",
                   [&](mf_error* e) { return mf_sequence_eval(sequence_, &token_, 1, &eval, e); });
  }
}

// 0.1 is another interface: its structs are shorter.
TEST_F(BadArguments, AStructThatLacksFieldsOfTheFirstVersionIsRefused) {
  mf_model_options options = MF_OPTIONS(options);
  options.struct_size -= sizeof(void*);
  mf_model* model = nullptr;
  expect_invalid("mf_model_options: struct_size",
                 [&](mf_error* e) { return mf_model_open(fable().c_str(), &options, &model, e); });
  mf_metrics metrics = MF_OPTIONS(metrics);
  metrics.struct_size -= sizeof(uint64_t);
  expect_invalid("mf_metrics: struct_size",
                 [&](mf_error* e) { return mf_model_get_metrics(model_.get(), &metrics, e); });
}

TEST_F(BadArguments, FieldsOfALaterVersionAreRefusedUnlessZero) {
  struct Later {
    mf_eval_options known;
    uint64_t unknown;
  };
  Later options = {MF_OPTIONS(options), 0};
  mf_error error;
  EXPECT_EQ(mf_sequence_eval(sequence_, &token_, 1, &options.known, &error), MF_OK)
      << error.message;
  options.unknown = 1;
  expect_code(MF_ERROR_UNSUPPORTED, "does not know", [&](mf_error* e) {
    return mf_sequence_eval(sequence_, &token_, 1, &options.known, e);
  });
}

TEST_F(BadArguments, OptionsThatMakeNoSense) {
  const auto open = [&](const char* piece, mf_code code, auto change) {
    mf_model_options options = MF_OPTIONS(options);
    change(options);
    mf_model* model = nullptr;
    expect_code(code, piece,
                [&](mf_error* e) { return mf_model_open(fable().c_str(), &options, &model, e); });
    EXPECT_EQ(model, nullptr);
  };
  constexpr mf_code kInvalid = MF_ERROR_INVALID_ARGUMENT;
  open("quantum", kInvalid, [](auto& o) { o.device = "quantum"; });
  open("f16", kInvalid, [](auto& o) { o.precision = "f16"; });
  open("tuning: expert-io: ", kInvalid, [](auto& o) { o.tuning = "expert-io=tape"; });
  open("did you mean prefill-chunk?", kInvalid, [](auto& o) { o.tuning = "prefil-chunk=4"; });
  open("'pin' is not key=value", kInvalid, [](auto& o) { o.tuning = "pin"; });
  open("q4_0", kInvalid, [](auto& o) { o.cache_type_k = "q4_0"; });
  open("bf16", kInvalid, [](auto& o) { o.cache_type_v = "bf16"; });
  open("-5 threads", kInvalid, [](auto& o) { o.threads = -5; });
  open("context length", kInvalid, [](auto& o) { o.context_length = int64_t{1} << 40; });
  open("expert_cache_bytes", kInvalid, [](auto& o) { o.expert_cache_bytes = -7; });
  open("turn_timeout_ms", kInvalid, [](auto& o) { o.turn_timeout_ms = -3; });
  mf_model* model = nullptr;
  expect_code(MF_ERROR_NOT_FOUND, "no such folder",
              [&](mf_error* e) { return mf_model_open("/nonexistent", nullptr, &model, e); });
  expect_invalid("path", [&](mf_error* e) { return mf_model_open(nullptr, nullptr, &model, e); });
  expect_invalid("model",
                 [&](mf_error* e) { return mf_model_open(fable().c_str(), nullptr, nullptr, e); });
}

TEST_F(BadArguments, MessagesAreOneLineOfUtf8WhateverThePath) {
  mf_model* model = nullptr;
  mf_error error;
  EXPECT_EQ(mf_model_open("/none/\xff\xc3\n\u00e9", nullptr, &model, &error), MF_ERROR_NOT_FOUND);
  EXPECT_STREQ(error.message, "/none/\uFFFD\uFFFD \u00e9: no such folder or file");
  // Cut where no character is: 1019 bytes have room for 509 of two bytes behind the slash.
  std::string path = "/";
  for (int i = 0; i < 1000; ++i) path += "\u00e9";
  EXPECT_EQ(mf_model_open(path.c_str(), nullptr, &model, &error), MF_ERROR_NOT_FOUND);
  EXPECT_EQ(std::string(error.message), path.substr(0, 1019));
}

TEST_F(BadArguments, SamplersAndTokensThatCannotBe) {
  mf_sampler_options sampler = MF_OPTIONS(sampler);
  mf_error error;
  ASSERT_EQ(mf_model_default_sampler(model_.get(), &sampler, &error), MF_OK);
  const mf_sampler_options defaults = sampler;
  const auto set = [&](mf_error* e) { return mf_sequence_set_sampler(sequence_, &sampler, e); };
  sampler.temperature = NAN;
  expect_invalid("temperature", set);
  sampler = defaults;
  sampler.logit_bias_count = 1;
  expect_invalid("logit_bias", set);
  const mf_logit_bias bias = {1 << 30, 1.0f};
  sampler.logit_bias = &bias;
  expect_invalid("vocabulary", set);
  sampler = defaults;
  sampler.samplers = "top_k;cool";
  expect_invalid("'cool' is not a sampler", set);
  sampler = defaults;
  sampler.dry_sequence_breakers_count = 1;
  expect_invalid("dry_sequence_breakers is null", set);
  const char* const breakers[] = {nullptr};
  sampler.dry_sequence_breakers = breakers;
  expect_invalid("dry_sequence_breakers: entry 0 is null", set);
  sampler = defaults;
  sampler.mirostat = 3;
  expect_invalid("mirostat", set);
  for (const int32_t token : {-1, 1 << 30}) {
    expect_invalid("vocabulary",
                   [&](mf_error* e) { return mf_sequence_eval(sequence_, &token, 1, nullptr, e); });
  }
  expect_invalid("no tokens",
                 [&](mf_error* e) { return mf_sequence_eval(sequence_, nullptr, 0, nullptr, e); });
  mf_generate_options generate = MF_OPTIONS(generate);
  generate.stop_strings_count = 1;
  const auto run = [&](mf_error* e) {
    return mf_sequence_generate(sequence_, &token_, 1, &generate, nullptr, e);
  };
  expect_invalid("stop_strings", run);
  const char* none = nullptr;
  generate.stop_strings = &none;
  expect_invalid("stop string 0 is null", run);
  generate.stop_strings_count = 0;
  generate.stop_tokens_count = 2;
  expect_invalid("stop_tokens", run);
  generate.stop_tokens_count = 0;
  generate.flags = 128;
  expect_code(MF_ERROR_UNSUPPORTED, "flags", run);
  expect_code(MF_ERROR_UNSUPPORTED, "flags", [&](mf_error* e) {
    return mf_model_tokenize(model_.get(), "a", 1, 64, nullptr, 0, &count_, e);
  });
  // None of this has moved the sequence.
  EXPECT_EQ(mf_sequence_position(sequence_, &position_, &error), MF_OK);
  EXPECT_EQ(position_, 1);
}

TEST_F(BadArguments, AnEmptySequenceHasNoLogits) {
  mf_sequence* empty = nullptr;
  ASSERT_EQ(mf_sequence_create(model_.get(), &empty, nullptr), MF_OK);
  const auto expect_empty = [&](const std::function<mf_code(mf_error*)>& call) {
    expect_code(MF_ERROR_FAILED_PRECONDITION, "empty", call);
  };
  expect_empty([&](mf_error* e) { return mf_sequence_logits(empty, row_.data(), row_.size(), e); });
  expect_empty([&](mf_error* e) { return mf_sequence_sample(empty, &token_, e); });
  expect_empty(
      [&](mf_error* e) { return mf_sequence_generate(empty, nullptr, 0, nullptr, nullptr, e); });
  mf_sequence_free(empty);
}

TEST(Version, IsThatOfTheHeader) {
  EXPECT_EQ(mf_version(), static_cast<uint32_t>(MF_VERSION));
  EXPECT_EQ(mf_version_string(), std::to_string(MF_VERSION_MAJOR) + "." +
                                     std::to_string(MF_VERSION_MINOR) + "." +
                                     std::to_string(MF_VERSION_PATCH));
  EXPECT_STREQ(mf_code_name(MF_ERROR_BUSY), "busy");
  EXPECT_STREQ(mf_code_name(12345), "unknown");
}

}  // namespace
}  // namespace moeflux::testing
