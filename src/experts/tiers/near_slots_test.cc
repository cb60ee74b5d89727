#include "experts/tiers/near_slots.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "experts/copying_encoder_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

ExpertKey slot_key(int32_t layer, int32_t expert) { return {LayerId{layer}, ExpertId{expert}}; }

/// Near slots over a table of three layers with twelve experts each.
struct NearWorld {
  explicit NearWorld(size_t slots)
      : far(table()),
        near(table(), {zeroed_buffer(std::max<size_t>(1, slots) * far.slot_bytes()), slots},
             far.slot_bytes(), {}) {}
  const ExpertTable& table() const { return experts.table(); }

  /// A decoded token that chooses these experts of a layer.
  void use(int32_t layer, std::vector<int32_t> ids,
           NearSlots::FarReader reader = NearSlots::FarReader::kDevice) {
    near.placement().begin_token();
    near.note(LayerId{layer}, StepPhase::kDecode, ids, 1, reader);
  }
  /// Starts at most so many moves; how many.
  size_t start(size_t most) {
    const auto moves = near.placement().choose_moves(most);
    near.start(encoder, moves, [&](ExpertKey slot_key) {
      return NearSlots::Source{&far.buffer(), far.offset_of(slot_key)};
    });
    return moves.size();
  }
  /// The experts that arrive now, in order.
  std::vector<ExpertKey> settle() {
    std::vector<ExpertKey> there;
    near.settle(encoder, [&](const NearPlacement::Move& move, ExpertPin pin) {
      EXPECT_FALSE(pin);
      EXPECT_TRUE(near.find(move.in).has_value());
      there.push_back(move.in);
    });
    return there;
  }
  /// Whether the expert is found, and its bytes are where it is found.
  bool has(ExpertKey slot_key) {
    const auto expert = near.find(slot_key);
    if (!expert) return false;
    const uint64_t begin = slot_begin(table(), slot_key.layer, *expert);
    EXPECT_TRUE(near.holds(*expert));
    EXPECT_TRUE(far.is_at(slot_key, *expert->gate.parts.codes.buffer, begin))
        << index(slot_key.expert);
    return true;
  }
  ExpertStats stats() const {
    ExpertStats stats;
    near.add_to(stats);
    return stats;
  }

  ExpertWorld experts;
  FarExperts far;
  CopyingEncoder encoder;
  NearSlots near;
};

using Keys = std::vector<ExpertKey>;

TEST(NearSlots, AnExpertIsThereOnceItsCopyIsKnownToHaveEnded) {
  NearWorld w(3);
  w.use(2, {5});
  EXPECT_EQ(w.start(4), 1u);
  EXPECT_EQ(w.near.num_coming(), 1u);
  EXPECT_FALSE(w.has(slot_key(2, 5)));
  EXPECT_EQ(w.settle(), Keys{});
  w.encoder.finish(1);
  EXPECT_FALSE(w.has(slot_key(2, 5)));  // nobody has looked
  EXPECT_EQ(w.settle(), Keys{slot_key(2, 5)});
  EXPECT_TRUE(w.has(slot_key(2, 5)));
  EXPECT_EQ(w.near.num_coming(), 0u);
  EXPECT_EQ(w.settle(), Keys{});  // each is told of once
}

TEST(NearSlots, CopiesAskedForTogetherArriveTogetherAndInOrder) {
  NearWorld w(8);
  w.use(0, {1, 2});
  w.start(8);
  w.use(0, {3});
  w.start(8);
  EXPECT_EQ(w.near.num_coming(), 3u);
  EXPECT_EQ(w.encoder.asked.size(), 2u);
  EXPECT_EQ(w.settle(), Keys{});
  w.encoder.finish(1);
  EXPECT_EQ(w.settle(), (Keys{slot_key(0, 1), slot_key(0, 2)}));
  EXPECT_EQ(w.near.num_coming(), 1u);
  w.use(0, {4});
  w.start(8);
  w.encoder.finish(3);
  EXPECT_EQ(w.settle(), (Keys{slot_key(0, 3), slot_key(0, 4)}));
  for (const int32_t e : {1, 2, 3, 4}) EXPECT_TRUE(w.has(slot_key(0, e))) << e;
}

TEST(NearSlots, WhoLeavesIsGoneBeforeItsSlotIsWrittenTo) {
  NearWorld w(1);
  w.use(0, {0});
  w.start(1);
  w.encoder.finish(1);
  w.settle();
  ASSERT_TRUE(w.has(slot_key(0, 0)));
  // Work recorded until now reads it there.
  const uint64_t bytes = w.far.slot_bytes();
  w.encoder.launch(*w.near.find(slot_key(0, 0))->gate.parts.codes.buffer, 0, bytes);
  for (int i = 0; i < 5; ++i) w.use(1, {7});
  EXPECT_EQ(w.start(1), 1u);
  EXPECT_FALSE(w.near.find(slot_key(0, 0)).has_value());
  EXPECT_FALSE(w.near.find(slot_key(1, 7)).has_value());
  ASSERT_EQ(w.encoder.asked.size(), 2u);  // and waits for that work: the encoder looks
  // The slot takes nobody else meanwhile.
  for (int i = 0; i < 99; ++i) w.use(2, {9});
  EXPECT_EQ(w.start(1), 0u);
  w.encoder.finish(2);
  EXPECT_EQ(w.settle(), Keys{slot_key(1, 7)});
  EXPECT_TRUE(w.has(slot_key(1, 7)));
}

TEST(NearSlots, NoMovesAskForNothing) {
  NearWorld w(2);
  EXPECT_EQ(w.start(2), 0u);
  EXPECT_TRUE(w.encoder.asked.empty());
  EXPECT_EQ(w.stats().bus_bytes, 0u);
}

TEST(NearSlots, WithoutSlotsEveryExpertIsFar) {
  NearWorld w(0);
  w.use(0, {1, 2});
  EXPECT_EQ(w.start(8), 0u);
  EXPECT_EQ(w.settle(), Keys{});
  EXPECT_FALSE(w.near.find(slot_key(0, 1)).has_value());
  EXPECT_EQ(w.stats().far_hits, 2u);
}

TEST(NearSlots, CountsHitsOfDecodeAndWhatWentOverTheBus) {
  NearWorld w(2);
  const uint64_t bytes = w.table().layer(LayerId{1}).slot_bytes;
  w.use(1, {3});  // read over the bus
  w.start(1);     // and brought
  w.encoder.finish(1);
  w.settle();
  EXPECT_EQ(w.stats().far_hits, 1u);
  EXPECT_EQ(w.stats().promotions, 1u);
  EXPECT_EQ(w.stats().bus_bytes, 2 * bytes);
  w.use(1, {3, 4});
  w.use(1, {3, 4}, NearSlots::FarReader::kHelper);  // which reads it where it is
  EXPECT_EQ(w.stats().near_hits, 2u);
  EXPECT_EQ(w.stats().far_hits, 3u);
  EXPECT_EQ(w.near.far_hits(), 3u);
  EXPECT_EQ(w.stats().bus_bytes, 3 * bytes);
  w.near.note_read(5);
  EXPECT_EQ(w.stats().bus_bytes, 3 * bytes + 5);
  // A prompt's choices are no hits, and bring who is chosen.
  w.near.note(LayerId{1}, StepPhase::kPrompt, std::vector<int32_t>{3, 8}, 2,
              NearSlots::FarReader::kDevice);
  EXPECT_EQ(w.stats().near_hits, 2u);
  EXPECT_EQ(w.stats().far_hits, 3u);
  EXPECT_EQ(w.near.placement().tokens(), 3u);
}

TEST(NearSlots, UploadsBringAnExpertAtOnceOrSayWhyNot) {
  NearWorld w(2);
  const NearSlots::Source source{&w.far.buffer(), w.far.offset_of(slot_key(0, 6))};
  const auto slot = w.near.placement().fill(slot_key(0, 6));
  ASSERT_TRUE(slot.has_value());
  EXPECT_FALSE(w.has(slot_key(0, 6)));
  ASSERT_TRUE(w.near.upload(w.experts.device(), slot_key(0, 6), *slot, source).ok());
  EXPECT_TRUE(w.has(slot_key(0, 6)));

  class BrokenDevice : public HostMemoryDevice {
   public:
    Status upload(Buffer&, uint64_t, std::span<const std::byte>) override {
      return Error(ErrorCode::kIo, "the bus is broken");
    }
  } broken;
  const auto other = w.near.placement().fill(slot_key(0, 7));
  expect_error(w.near.upload(broken, slot_key(0, 7), *other, source), ErrorCode::kIo, {"broken"});
  EXPECT_FALSE(w.near.find(slot_key(0, 7)).has_value());
}

TEST(NearSlotsDeathTest, NobodyIsCopiedWithinTheSlotsOrFoundBeforeItIsThere) {
  NearWorld w(2);
  w.use(0, {1});
  const auto moves = w.near.placement().choose_moves(1);
  ASSERT_EQ(moves.size(), 1u);
  Buffer* own = w.near.at(slot_key(0, 1), 0).gate.parts.codes.buffer;
  EXPECT_DEATH(w.near.start(w.encoder, moves,
                            [&](ExpertKey) {
                              return NearSlots::Source{own, 0};
                            }),
               "buffer");
}

/// Has so many bytes of memory in all.
class SmallDevice : public HostMemoryDevice {
 public:
  explicit SmallDevice(uint64_t bytes) : bytes_(bytes) {}
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    EXPECT_EQ(kind, MemoryKind::kDevice);
    if (bytes > bytes_) return Error(ErrorCode::kResourceExhausted, "no memory");
    return HostMemoryDevice::allocate(bytes, kind);
  }

 private:
  uint64_t bytes_;
};

TEST(NearMemory, IsWholeSlotsOfWhatWasAskedForAndNoMoreThanThereAreExperts) {
  const ExpertWorld world;
  const size_t slot = world.slot_bytes();
  SmallDevice device(1000 * slot);
  const auto slots = [&](uint64_t bytes) {
    const auto memory = allocate_near(world.table(), device, {.near_bytes = bytes});
    EXPECT_TRUE(memory.ok());
    EXPECT_EQ(memory->buffer == nullptr, memory->slots == 0);
    return memory->slots;
  };
  EXPECT_EQ(slots(0), 0u);
  EXPECT_EQ(slots(slot - 1), 0u);
  EXPECT_EQ(slots(3 * slot - 1), 2u);
  EXPECT_EQ(slots(UINT64_MAX), world.table().num_experts_total());
}

TEST(NearMemory, WhereTheDeviceHasLessThereAreFewerSlotsAndALineThatSaysSo) {
  const ExpertWorld world;
  const size_t slot = world.slot_bytes();
  SmallDevice device(20 * slot);
  std::vector<std::string> lines;
  const auto memory = allocate_near(
      world.table(), device, {.near_bytes = 24 * slot, .on_less = [&](const std::string& line) {
                                lines.push_back(line);
                              }});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->slots, 18u);  // 24, 21, 18
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("near cache"), std::string::npos);
  SmallDevice none(0);
  const auto nothing = allocate_near(world.table(), none, {.near_bytes = 24 * slot});
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->slots, 0u);
}

TEST(DistinctIds, AreAscendingWithoutRepetitions) {
  std::vector<int32_t> ids = {9};
  distinct_ids(std::vector<int32_t>{5, 1, 5, 3, 1}, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 3, 5}));
  distinct_ids({}, ids);
  EXPECT_TRUE(ids.empty());
}

}  // namespace
}  // namespace moeflux
