// An encoder whose copies beside the work are made as late as a device may make them, and which
// knows whether what is read has arrived and whether what is written to is still read.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/host_buffer.h"
#include "backend/trace/trace_encoder.h"
#include "experts/expert_world_test_util.h"

namespace moeflux {

class CopyingEncoder : public TraceEncoder {
 public:
  struct Asked {
    std::vector<BufferCopy> copies;
    EventId after{};
  };

  EventId submit() override {
    events_.push_back(work_);
    return EventId{events_.size()};
  }
  CopyId copy_beside(std::span<const BufferCopy> copies, EventId after) override {
    asked.push_back({{copies.begin(), copies.end()}, after});
    for (const BufferCopy& copy : copies) expect_unread(copy, after);
    return CopyId{asked.size()};
  }
  void await_copies(CopyId last) override {
    finish(static_cast<size_t>(last));
    awaited_ = std::max(awaited_, static_cast<size_t>(last));
  }
  bool has_copied(CopyId last) override {
    const auto count = static_cast<size_t>(last);
    if (count > finished_) return false;
    known_ = std::max(known_, count);
    return true;
  }

  // --- The test's side ---

  /// The first `count` of all that were asked for are done.
  void finish(size_t count) {
    ASSERT_LE(count, asked.size()) << "nobody asked for these copies";
    for (; finished_ < count; ++finished_) {
      for (const BufferCopy& copy : asked[finished_].copies) {
        std::memcpy(copy.to->host_data() + copy.to_offset,
                    copy.from->host_data() + copy.from_offset, copy.bytes);
      }
    }
  }
  /// Records a launch that reads `bytes` there.
  void launch(const Buffer& buffer, uint64_t offset, uint64_t bytes) {
    reads_.push_back({&buffer, offset, bytes, ++work_});
    for (size_t i = std::max(awaited_, known_); i < asked.size(); ++i) {
      for (const BufferCopy& copy : asked[i].copies) {
        EXPECT_FALSE(overlap(reads_.back(), copy)) << "it does not wait for copy " << i + 1;
      }
    }
  }
  size_t awaited() const { return awaited_; }

  std::vector<Asked> asked;

 private:
  struct Read {
    const Buffer* buffer;
    uint64_t offset;
    uint64_t bytes;
    uint64_t work;
  };

  static bool overlap(const Read& read, const BufferCopy& copy) {
    return read.buffer == copy.to && read.offset < copy.to_offset + copy.bytes &&
           copy.to_offset < read.offset + read.bytes;
  }
  void expect_unread(const BufferCopy& copy, EventId after) const {
    const auto event = static_cast<size_t>(after);
    ASSERT_TRUE(event > 0 && event <= events_.size()) << "no such event";
    for (const Read& read : reads_) {
      if (!overlap(read, copy)) continue;
      EXPECT_LE(read.work, events_[event - 1]) << "written to while it may still be read";
    }
  }

  uint64_t work_ = 0;             // launches recorded
  std::vector<uint64_t> events_;  // which of them each event stands behind
  std::vector<Read> reads_;
  size_t finished_ = 0;
  size_t awaited_ = 0;  // by work that is recorded later
  size_t known_ = 0;    // to the host, to have ended
};

/// All experts of a table in one buffer, each of whose bytes tell which it is.
class FarExperts {
 public:
  explicit FarExperts(const ExpertTable& table) : table_(table) {
    auto made = allocate_host_buffer(table.layers.size() * ExpertWorld::kExperts * slot_bytes());
    EXPECT_TRUE(made.ok());
    buffer_ = std::move(made).value();
    for (int32_t l = 0; l < static_cast<int32_t>(table.layers.size()); ++l) {
      for (int32_t e = 0; e < ExpertWorld::kExperts; ++e) {
        const ExpertKey key{LayerId{l}, ExpertId{e}};
        std::memset(buffer_->host_data() + offset_of(key), mark_of(key), slot_bytes());
      }
    }
  }
  size_t slot_bytes() const { return table_.slot_bytes_max(); }
  static int mark_of(ExpertKey key) {
    return 1 + index(key.layer) * ExpertWorld::kExperts + index(key.expert);
  }
  Buffer& buffer() { return *buffer_; }
  uint64_t offset_of(ExpertKey key) const {
    return static_cast<uint64_t>(mark_of(key) - 1) * slot_bytes();
  }
  /// Whether the bytes of this expert lie there.
  bool is_at(ExpertKey key, const Buffer& buffer, uint64_t offset) const {
    const std::byte* begin = buffer.host_data() + offset;
    return std::all_of(begin, begin + table_.layer(key.layer).slot_bytes,
                       [&](std::byte b) { return static_cast<int>(b) == mark_of(key); });
  }

 private:
  const ExpertTable& table_;
  std::unique_ptr<Buffer> buffer_;
};

inline std::unique_ptr<Buffer> zeroed_buffer(size_t bytes) {
  auto made = allocate_host_buffer(bytes);
  EXPECT_TRUE(made.ok());
  std::memset((*made)->host_data(), 0, bytes);
  return std::move(made).value();
}

/// Where an expert's slot begins.
inline uint64_t slot_begin(const ExpertTable& table, LayerId layer, const ExpertWeights& expert) {
  return expert.gate.parts.codes.offset_bytes - table.layer(layer).gate.parts.codes.offset_bytes;
}

}  // namespace moeflux
