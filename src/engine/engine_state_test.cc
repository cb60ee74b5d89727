// Checkpoints, rewinding, snapshots and kept prefixes when something is wrong: errors are typed and
// leave the sequence as it was. That they are exact is tests/golden/past_golden_test's to show.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <random>

#include "backend/cpu/cpu_device.h"
#include "engine/sequence_file.h"
#include "engine/snapshot.h"
#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"
#include "tests/support/packed_copy.h"

namespace moeflux {
namespace {

using testing::expect_error;
using Bytes = std::vector<std::byte>;

class EngineStateTest : public TinyEngineTest {
 protected:
  /// The rest of the text goes on from where the sequence is.
  void expect_goes_on(Engine& engine, Sequence& sequence, const Tokens& text) {
    const auto done = static_cast<size_t>(sequence.length());
    ASSERT_LT(done, text.size());
    ASSERT_TRUE(std::equal(text.begin(), text.begin() + static_cast<ptrdiff_t>(done),
                           sequence.tokens().begin(), sequence.tokens().end()));
    const std::vector<float> expected = last_row(all_logits(engine, text));
    const auto last = eval_last(engine, sequence, std::span(text).subspan(done));
    ASSERT_TRUE(last.ok()) << last.error().to_string();
    EXPECT_EQ(std::vector<float>(last->begin(), last->end()), expected);
  }
  static std::unique_ptr<Sequence> evaluated(Engine& engine, std::span<const TokenId> tokens) {
    auto sequence = start(engine);
    EXPECT_TRUE(eval_last(engine, *sequence, tokens).ok());
    return sequence;
  }
  static Bytes saved(Engine& engine, const Sequence& sequence) {
    auto snapshot = engine.save(sequence);
    EXPECT_TRUE(snapshot.ok());
    return snapshot.ok() ? std::move(snapshot).value() : Bytes();
  }
  std::string weights() const { return folder_ / "model.safetensors"; }
  /// The fingerprint of the tiny model with one byte of a tensor changed: the middle one, or
  /// another.
  uint64_t fingerprint_with(const std::string& tensor, std::optional<size_t> at = std::nullopt) {
    const testing::TempFolder folder;
    testing::TinyModel model =
        testing::make_tiny_model({.experts = testing::ExpertNames::kSeparate});
    if (!tensor.empty()) {
      const auto found = std::ranges::find_if(model.tensors, [&](const auto& entry) {
        return entry.first.find(tensor) != std::string::npos;
      });
      EXPECT_NE(found, model.tensors.end()) << tensor;
      std::string& bytes = found->second.bytes;
      char& byte = bytes.at(at.value_or(bytes.size() / 2));
      byte = static_cast<char>(byte ^ 1);
    }
    model.write(folder.path());
    const auto engine = Engine::open(folder.path(), *device_, {});
    EXPECT_TRUE(engine.ok());
    return (*engine)->fingerprint();
  }

  const Tokens text_ = some_tokens(20);
};

TEST_F(EngineStateTest, UnknownCheckpointsAreNotFound) {
  const auto engine = open({});
  const auto a = evaluated(*engine, std::span(text_).first(5));
  const auto b = evaluated(*engine, std::span(text_).first(3));
  const auto checkpoint = engine->checkpoint(*a);
  ASSERT_TRUE(checkpoint.ok());
  expect_error(engine->restore(*b, *checkpoint), ErrorCode::kNotFound, {"no checkpoint 1"});
  expect_error(engine->drop(*b, *checkpoint), ErrorCode::kNotFound, {"no checkpoint 1"});
  ASSERT_TRUE(engine->drop(*a, *checkpoint).ok());
  expect_error(engine->restore(*a, *checkpoint), ErrorCode::kNotFound, {"no checkpoint 1"});
  EXPECT_NE(*engine->checkpoint(*b), *checkpoint);
  expect_goes_on(*engine, *a, text_);
  expect_goes_on(*engine, *b, text_);
}

TEST_F(EngineStateTest, PositionsOutsideTheSequenceAreRefused) {
  const auto engine = open({});
  const auto sequence = evaluated(*engine, std::span(text_).first(5));
  for (const int64_t position : {int64_t{-1}, int64_t{6}}) {
    expect_error(engine->truncate(*sequence, position), ErrorCode::kInvalidArgument,
                 {"a sequence of 5"});
  }
  expect_goes_on(*engine, *sequence, text_);
}

TEST_F(EngineStateTest, SaysWhatCanBeCutAndWhatItHolds) {
  {
    const auto engine = open({});
    const auto sequence = evaluated(*engine, std::span(text_).first(5));
    EXPECT_TRUE(sequence->can_truncate(5));
    EXPECT_FALSE(sequence->can_truncate(4));
    EXPECT_EQ(engine->loaded().shortest_truncation(5), 5);
    EXPECT_GT(engine->state_bytes(0), 0u);  // of a fixed size
  }
  write_attention_model();
  const auto engine = open({.context_length = 512});
  const auto sequence = evaluated(*engine, std::span(text_).first(5));
  EXPECT_TRUE(sequence->can_truncate(4));
  EXPECT_EQ(engine->loaded().shortest_truncation(5), 0);
  EXPECT_EQ(engine->state_bytes(0), 0u);
  EXPECT_EQ(engine->state_bytes(512), engine->memory_plan().state_bytes);
  EXPECT_EQ(engine->state_bytes(257), engine->state_bytes(512));  // whole pages
  EXPECT_EQ(engine->state_bytes(256) * 2, engine->state_bytes(512));
}

TEST_F(EngineStateTest, StoppedTruncationChangesNothing) {
  const auto engine = open({});
  const auto sequence = evaluated(*engine, std::span(text_).first(15));
  std::stop_source stop;
  stop.request_stop();
  expect_error(engine->truncate(*sequence, 10, stop.get_token()), ErrorCode::kCancelled, {});
  EXPECT_EQ(sequence->length(), 15);
  expect_goes_on(*engine, *sequence, text_);
}

TEST_F(EngineStateTest, BrokenSequenceIsMendedByGoingBack) {
  const auto engine = open({.expert_cache_bytes = 0});
  const auto sequence = evaluated(*engine, std::span(text_).first(5));
  const Bytes snapshot = saved(*engine, *sequence);
  const auto checkpoint = engine->checkpoint(*sequence);
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_TRUE(eval_last(*engine, *sequence, std::span(text_).subspan(5, 3)).ok());
  const std::string whole = testing::read_bytes(weights());
  const auto mends = [&](const std::function<bool()>& mend) {
    std::filesystem::resize_file(weights(), whole.size() / 2);
    expect_error(eval_last(*engine, *sequence, std::span(text_).subspan(8)), ErrorCode::kIo, {});
    expect_error(engine->truncate(*sequence, 7), ErrorCode::kIo, {});  // cannot evaluate again
    testing::write_bytes(weights(), whole);
    expect_error(engine->checkpoint(*sequence), ErrorCode::kFailedPrecondition, {"token 8"});
    expect_error(engine->save(*sequence), ErrorCode::kFailedPrecondition, {"token 8"});
    expect_error(engine->fork(*sequence), ErrorCode::kFailedPrecondition, {"token 8"});
    expect_error(engine->prefixes().keep(*sequence), ErrorCode::kFailedPrecondition, {"token 8"});
    EXPECT_TRUE(mend());
    expect_goes_on(*engine, *sequence, text_);
    EXPECT_TRUE(engine->truncate(*sequence, 8).ok());
  };
  mends([&] { return engine->restore(*sequence, *checkpoint).ok(); });
  mends([&] { return engine->truncate(*sequence, 8).ok(); });
  mends([&] { return engine->truncate(*sequence, 0).ok(); });
  mends([&] { return engine->load(*sequence, snapshot).ok(); });
}

TEST_F(EngineStateTest, SnapshotsOfOthersAreRefused) {
  const testing::TempFolder other_folder;
  testing::make_tiny_model({.bits = 4}).write(other_folder.path());
  auto other = Engine::open(other_folder.path(), *device_, {});
  ASSERT_TRUE(other.ok());
  const Bytes foreign = saved(**other, *evaluated(**other, text_));
  const auto engine = open({});
  const auto sequence = evaluated(*engine, std::span(text_).first(5));
  expect_error(engine->load(*sequence, foreign), ErrorCode::kInvalidArgument, {"fingerprint"});

  const auto narrow = open({.context_length = 10});
  const auto short_one = evaluated(*narrow, std::span(text_).first(2));
  const Bytes snapshot = saved(*engine, *evaluated(*engine, text_));
  expect_error(narrow->load(*short_one, snapshot), ErrorCode::kResourceExhausted,
               {"20 tokens", "context of 10"});
  expect_goes_on(*narrow, *short_one, {text_.begin(), text_.begin() + 10});

  auto view = parse_snapshot(snapshot);
  ASSERT_TRUE(view.ok());
  view->tokens[3] = kVocab;  // whole, and not of this vocabulary
  SnapshotBuilder builder(view->header, view->tokens, {});
  for (size_t i = 0; i < view->layers.size(); ++i) {
    std::ranges::copy(view->layers[i], builder.layer(i).begin());
  }
  expect_error(engine->load(*sequence, std::move(builder).finish()), ErrorCode::kCorruption,
               {"token 64", "vocabulary of 64"});
  expect_error(engine->save(*sequence, Bytes(kExtraBytesMax + 1)), ErrorCode::kInvalidArgument,
               {"bytes beside a state"});
  expect_goes_on(*engine, *sequence, text_);
}

TEST_F(EngineStateTest, MutatedSnapshotsAreRefusedAndChangeNothing) {
  const auto engine = open({});
  const auto sequence = evaluated(*engine, std::span(text_).first(5));
  const Bytes good = saved(*engine, *evaluated(*engine, std::span(text_).first(12)));
  std::mt19937 random(1);
  const auto below = [&](size_t bound) { return random() % bound; };
  for (int i = 0; i < 100'000; ++i) {
    Bytes bytes = good;
    switch (below(4)) {
      case 0:
        bytes[below(bytes.size())] ^= static_cast<std::byte>(1 + below(255));
        break;
      case 1:
        bytes.resize(below(bytes.size()));
        break;
      case 2:
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(below(bytes.size())), 1 + below(64),
                     std::byte{0});
        break;
      case 3:  // in the header, where sizes are
        for (int n = 0; n < 4; ++n) bytes[below(180)] = static_cast<std::byte>(below(256));
        break;
    }
    const bool same = bytes == good;
    const auto loaded = engine->load(*sequence, bytes);
    ASSERT_EQ(loaded.ok(), same) << i;
    ASSERT_EQ(sequence->length(), same ? 12 : 5) << i;
    if (same) {
      ASSERT_TRUE(engine->truncate(*sequence, 5).ok());
    }
  }
  expect_goes_on(*engine, *sequence, text_);
}

TEST_F(EngineStateTest, FilesAreOldOrComplete) {
  const auto engine = open({});
  const auto sequence = evaluated(*engine, std::span(text_).first(9));
  const std::string path = folder_ / "state";
  const Bytes extra = {std::byte{9}};
  ASSERT_TRUE(save_sequence(*engine, *sequence, path, extra).ok());
  const auto loaded = start(*engine);
  const auto back = load_sequence(*engine, *loaded, path);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(*back, extra);
  expect_goes_on(*engine, *loaded, text_);

  const auto other = evaluated(*engine, std::span(text_).first(3));
  expect_error(load_sequence(*engine, *other, folder_ / "none"), ErrorCode::kNotFound, {"none"});
  EXPECT_FALSE(save_sequence(*engine, *other, folder_ / "none/state").ok());
  const std::string whole = testing::read_bytes(path);
  testing::write_bytes(path, whole.substr(0, whole.size() - 1));
  expect_error(load_sequence(*engine, *other, path), ErrorCode::kCorruption, {path});
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // sparse
  expect_error(load_sequence(*engine, *other, path), ErrorCode::kResourceExhausted,
               {path, "context"});
  expect_goes_on(*engine, *other, text_);
}

TEST_F(EngineStateTest, FingerprintSeesWeightsAndNotTheirPlaces) {
  const uint64_t fingerprint = open({})->fingerprint();
  EXPECT_EQ(fingerprint_with(""), fingerprint);
  EXPECT_NE(fingerprint_with("q_proj"), fingerprint);
  EXPECT_NE(fingerprint_with("experts.0.gate_proj"), fingerprint);
  for (const WeightOrder order : {WeightOrder::kRowMajor, WeightOrder::kTiled}) {
    const testing::TempFolder packed;
    testing::expect_packed(folder_.path(), packed.path(), {.order = order});
    const auto engine = Engine::open(packed.path(), *device_, {});
    ASSERT_TRUE(engine.ok());
    EXPECT_EQ((*engine)->fingerprint(), fingerprint);
  }
}

// Reading all weights would take as long as loading them. So of a model that differs from another
// in few numbers the fingerprint may be the same: docs/formats/snapshot.md has the limit.
TEST_F(EngineStateTest, FingerprintDoesNotSeeWhatItDoesNotSample) {
  const uint64_t fingerprint = open({})->fingerprint();
  // Eight KiB, of which it reads the four in the middle.
  EXPECT_NE(fingerprint_with("embed_tokens", 4096), fingerprint);
  EXPECT_EQ(fingerprint_with("embed_tokens", 0), fingerprint);
  EXPECT_EQ(fingerprint_with("embed_tokens", 8191), fingerprint);
  // It reads the first one of a layer's experts.
  EXPECT_EQ(fingerprint_with("experts.1.gate_proj"), fingerprint);
}

TEST_F(EngineStateTest, PrefixesStartEmptySequencesOnly) {
  const auto off = open({});
  const auto nothing = start(*off);
  EXPECT_TRUE(off->prefixes().keep(*evaluated(*off, text_)).ok());
  const auto none = off->prefixes().reuse(*nothing, text_);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, 0);

  const auto engine = open({.prefix_cache_bytes = 1 << 20});
  const auto sequence = evaluated(*engine, std::span(text_).first(5));
  ASSERT_TRUE(engine->prefixes().keep(*sequence).ok());
  expect_error(engine->prefixes().reuse(*sequence, text_), ErrorCode::kFailedPrecondition,
               {"5 tokens"});
  EXPECT_TRUE(engine->prefixes().are_kept());
  EXPECT_FALSE(off->prefixes().are_kept());
  EXPECT_EQ(off->prefixes().find(text_), 0);
  EXPECT_EQ(engine->prefixes().find(text_), 5);
  EXPECT_EQ(engine->prefixes().find(std::span(text_).first(5)), 0);  // its last token is wanted
  EXPECT_EQ(engine->prefixes().find({}), 0);
  const auto started = start(*engine);
  const auto reused = engine->prefixes().reuse(*started, text_);
  ASSERT_TRUE(reused.ok());
  EXPECT_EQ(*reused, 5);
  expect_goes_on(*engine, *started, text_);
  const auto empty = start(*engine);
  EXPECT_EQ(*engine->prefixes().reuse(*empty, {}), 0);
}

TEST_F(EngineStateTest, PrefixesAreSharedByWhoeverComputesTheSameBits) {
  const std::string kept = folder_ / "kept";
  const auto reused = [&](const CpuOptions& options) {
    const auto device = make_cpu_device(options);
    EXPECT_TRUE(device.ok());
    const EngineOptions with_prefixes = {.prefix_cache_bytes = 1 << 20,
                                         .prefix_cache_directory = kept};
    const auto engine = Engine::open(folder_.path(), **device, with_prefixes);
    EXPECT_TRUE(engine.ok());
    const auto sequence = start(**engine);
    const auto length = (*engine)->prefixes().reuse(*sequence, text_);
    EXPECT_TRUE(length.ok());
    const auto prompt = evaluated(**engine, std::span(text_).first(19));
    EXPECT_TRUE((*engine)->prefixes().keep(*prompt).ok());
    return *length;
  };
  EXPECT_EQ(reused({.threads = 2, .isa = "generic"}), 0);
  EXPECT_EQ(reused({.threads = 1, .isa = "generic"}), 19);
  EXPECT_EQ(reused({.threads = 1, .isa = "generic", .precision = Precision::kInt8}), 0);
  EXPECT_EQ(reused({.threads = 3, .isa = "generic", .precision = Precision::kInt8}), 19);
}

TEST_F(EngineStateTest, StatesInOtherTypesAreOthers) {
  const std::string kept = folder_ / "kept";
  const auto of = [&](DType keys, DType values) {
    return open({.cache_type_k = keys,
                 .cache_type_v = values,
                 .prefix_cache_bytes = 1 << 20,
                 .prefix_cache_directory = kept});
  };
  const auto f32 = of(DType::kF32, DType::kF32);
  const auto sequence = evaluated(*f32, std::span(text_).first(19));
  ASSERT_TRUE(f32->prefixes().keep(*sequence).ok());
  const auto snapshot = f32->save(*sequence);
  ASSERT_TRUE(snapshot.ok());
  for (const auto& [keys, values] : {std::pair{DType::kF16, DType::kF16},
                                     {DType::kF16, DType::kF32},
                                     {DType::kF32, DType::kF16}}) {
    const auto other = of(keys, values);
    const auto started = start(*other);
    EXPECT_EQ(*other->prefixes().reuse(*started, text_), 0);
    expect_error(other->load(*started, *snapshot), ErrorCode::kInvalidArgument,
                 {"layer 1", "F32", "F16"});
    const auto own = other->save(*evaluated(*other, std::span(text_).first(19)));
    ASSERT_TRUE(own.ok());
    EXPECT_LT(own->size(), snapshot->size());
    ASSERT_TRUE(other->load(*started, *own).ok());
    expect_goes_on(*other, *started, text_);
  }
  const auto again = of(DType::kF32, DType::kF32);
  EXPECT_EQ(*again->prefixes().reuse(*start(*again), text_), 19);
}

/// Keeps what every device keeps.
class PlainDevice : public Device {
 public:
  explicit PlainDevice(Device& inner) : inner_(inner) {}
  std::string_view name() const override { return "plain"; }
  std::string_view description() const override { return inner_.description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    return inner_.allocate(bytes, kind);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    return inner_.create_encoder(scratch_bytes);
  }

 private:
  Device& inner_;
};

TEST_F(EngineStateTest, DevicesRefuseTypesTheyDoNotKeep) {
  PlainDevice plain(*device_);
  expect_error(Engine::open(folder_.path(), plain, {.cache_type_v = DType::kF16}),
               ErrorCode::kUnsupported, {"f16", "plain", "--cache-type-k"});
}

TEST_F(EngineStateTest, PrefixLongerThanTheContextIsAShorterOne) {
  write_attention_model();
  const std::string kept = folder_ / "kept";
  const auto wide = open({.prefix_cache_bytes = 1 << 20, .prefix_cache_directory = kept});
  ASSERT_TRUE(wide->prefixes().keep(*evaluated(*wide, text_)).ok());
  const auto narrow =
      open({.context_length = 10, .prefix_cache_bytes = 1 << 20, .prefix_cache_directory = kept});
  const auto sequence = start(*narrow);
  const auto reused = narrow->prefixes().reuse(*sequence, std::span(text_).first(9));
  ASSERT_TRUE(reused.ok()) << reused.error().to_string();
  EXPECT_EQ(*reused, 8);
  expect_goes_on(*narrow, *sequence, {text_.begin(), text_.begin() + 10});
  const auto full = start(*narrow);
  const auto all = narrow->prefixes().reuse(*full, text_);
  ASSERT_TRUE(all.ok()) << all.error().to_string();
  EXPECT_EQ(*all, 10);
  expect_error(eval_last(*narrow, *full, std::span(text_).subspan(10)),
               ErrorCode::kResourceExhausted, {"context of 10"});
  const auto again = start(*wide);
  EXPECT_EQ(*wide->prefixes().reuse(*again, text_), 19);  // nobody removed it
  expect_goes_on(*wide, *again, text_);
}

TEST_F(EngineStateTest, PrefixLongerThanTheContextThatCannotBeCutIsAMiss) {
  const std::string kept = folder_ / "kept";
  const auto wide = open({.prefix_cache_bytes = 1 << 20, .prefix_cache_directory = kept});
  ASSERT_TRUE(wide->prefixes().keep(*evaluated(*wide, std::span(text_).first(19))).ok());
  const auto narrow =
      open({.context_length = 10, .prefix_cache_bytes = 1 << 20, .prefix_cache_directory = kept});
  const auto sequence = start(*narrow);
  for (const size_t n : {size_t{9}, text_.size()}) {
    const auto reused = narrow->prefixes().reuse(*sequence, std::span(text_).first(n));
    ASSERT_TRUE(reused.ok()) << reused.error().to_string();
    EXPECT_EQ(*reused, 0);
  }
  EXPECT_EQ(*wide->prefixes().reuse(*start(*wide), text_), 19);
}

}  // namespace
}  // namespace moeflux
