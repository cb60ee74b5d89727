// LayerStream: reads the layers of a ring from the drive in their order, round and round, each as
// soon as its slot is free. A thread of its own keeps the drive busy while a layer computes, and
// others help it to arrange what has arrived.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "backend/encoder.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/tensor_index.h"
#include "io/aligned_read.h"
#include "io/async_reader.h"
#include "model/layer_source.h"
#include "model/weights/layer_ring.h"

namespace moeflux {

class LayerStream : public LayerSource {
 public:
  /// The modules of each layer follow one another, in the order of layers. References and buffers
  /// must outlive the stream; the reader is its own. The first layers are read at once. As many
  /// threads arrange matrices, the reading one among them.
  LayerStream(const TensorIndex& files, std::span<const StreamedModule> modules,
              std::unique_ptr<AsyncReader> reader, int threads = 1);
  /// Waits for the layer that is being read.
  ~LayerStream() override;

  /// Layers come in ascending order, from any on: another than the next begins anew there. A
  /// layer that could not be read is read a second time before kIo, which names it.
  Status begin_layer(LayerId layer, Encoder& encoder) override;

  struct Stats {
    uint64_t bytes_read = 0;  // by completed layers
    uint64_t stall_us = 0;    // time that begin_layer() waited for them
    uint64_t read_us = 0;     // time with a read in flight
  };
  /// Any thread.
  Stats stats() const;

 private:
  struct Layer {
    LayerId id{};
    std::span<const StreamedModule> modules;
    uint64_t stored_bytes = 0;
    uint64_t landing_bytes = 0;
  };
  struct Slot {
    size_t layer = SIZE_MAX;  // of layers_, that is being read or there; SIZE_MAX: free
    bool has_arrived = false;
    bool is_used = false;  // until another layer begins
    Status status;         // once it has arrived
  };

  Slot& slot_of(size_t layer) {
    return slots_[static_cast<size_t>(layers_[layer].modules.front().slot)];
  }
  size_t after(size_t layer) const { return (layer + 1) % layers_.size(); }
  void read_on(const std::stop_token& stop);
  Status read(const Layer& layer);
  Status read_modules(const Layer& layer);
  Status arrange_landed(const Layer& layer);
  void list_requests(const Layer& layer);
  void begin_anew(size_t layer, std::unique_lock<std::mutex>& lock);
  const Status& wait_for(size_t layer, std::unique_lock<std::mutex>& lock);

  const TensorIndex& files_;
  std::vector<Layer> layers_;

  // The thread's own.
  std::unique_ptr<AsyncReader> reader_;
  BounceBuffer landing_;
  std::vector<ReadRequest> requests_;
  std::vector<Weight> landed_;  // by module of the layer: as it is stored, in landing_
  /// Rows of a module that has arrived.
  struct Piece {
    size_t module = 0;
    int64_t begin = 0;
    int64_t rows = 0;
  };
  std::vector<Piece> pieces_;
  ThreadPool arrangers_;

  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable_any changed_;
  std::vector<Slot> slots_;
  size_t next_read_ = 0;
  size_t next_asked_ = 0;
  bool is_reading_ = false;
  bool has_failed_ = false;  // nothing is read until somebody asks
  Stats stats_;
  std::jthread thread_;  // uses all of it
};

}  // namespace moeflux
