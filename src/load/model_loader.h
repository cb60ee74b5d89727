// Opens a model folder: config, tensor index, family, weights on a device, and where the experts
// lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "experts/expert_table.h"
#include "experts/routes/route_trace.h"
#include "model/config/config.h"
#include "model/family/family.h"
#include "model/model.h"
#include "model/weights/weight_store.h"
#include "state/sequence_state.h"

namespace moeflux {

struct LoadedModel {
  std::string config_json;
  TensorIndex index;
  std::vector<std::unique_ptr<Buffer>> buffers;  // of the dense weights
  std::unique_ptr<Model> model;
  ExpertTable experts;
  DenseSizes dense;
  std::vector<ClaimedModule> modules;        // the linear ones, without routed experts
  std::vector<StreamedModule> streamed;      // of these, in a ring
  std::vector<FarNetwork> far_networks;      // in the host's memory, for a device with its own
  std::vector<NgramTable> ngram_tables;      // of which nothing is in memory
  std::vector<ClaimedFloats> floats;         // the small tensors
  std::vector<std::string> expert_prefixes;  // by layer, canonical
  const Family* family = nullptr;
  CacheTypes cache_types;  // of its sequences' keys and values
  /// The format the weights are taken to have where the folder holds none; empty when it does.
  std::string assumed_weights;

  const ModelSpec& spec() const { return model->spec(); }
  /// A trace of this model's routes begins with it.
  RouteTraceHeader trace_header(std::string name) const;
  std::vector<LayerStateSpec> states() const { return state_specs(spec(), cache_types); }
  /// The least length to which any sequence of `length` tokens can be truncated with nothing
  /// evaluated again, whatever was evaluated last: 0, or `length` itself.
  int64_t shortest_truncation(int64_t length) const {
    return SequenceState::shortest_truncation(states(), length);
  }
  /// Whether a step overwrites what a layer remembers of earlier ones: a sequence cannot forget the
  /// step's tokens then.
  bool has_fixed_states() const {
    return std::ranges::any_of(states(), [](const LayerStateSpec& layer) {
      return !std::ranges::all_of(layer.tensors, &StateTensor::is_per_token);
    });
  }
};

/// Fails as find_model_place() does, and with kFailedPrecondition when a packing into the folder
/// has not finished.
Status check_model_folder(const std::string& path);

/// Told how many bytes of dense weights have been read of how many; false stops loading with
/// kCancelled.
using LoadProgress = ReadProgress;

/// Says where dense weights lie, given the model before any of them has been placed.
using DensePlanner = std::function<Result<DensePlaces>(LoadedModel& counted)>;

/// Fails with the file, key or tensor that is wrong, and as `plan` does. The device must outlive
/// the result.
Result<std::unique_ptr<LoadedModel>> load_model(const std::string& directory, Device& device,
                                                WeightLoading loading,
                                                const LoadProgress& progress = {},
                                                const DensePlanner& plan = {},
                                                const ModelUse& use = {});

/// A model that lies anywhere: `config_json` is the text of its config.json.
Result<std::unique_ptr<LoadedModel>> load_model(std::string_view config_json, TensorIndex index,
                                                Device& device, WeightLoading loading);

/// A model of which there is only its config.json, with weights as assumed, or as the config says.
Result<std::unique_ptr<LoadedModel>> assume_model(std::string_view config_json, Device& device,
                                                  const AssumedFormat& assumed,
                                                  const ModelUse& use = {});

/// For inspection: checks everything and reads no weights. A folder that has config.json and no
/// *.safetensors is described as by assume_model().
Result<std::unique_ptr<LoadedModel>> describe_model(const std::string& directory, Device& device,
                                                    const AssumedFormat& assumed,
                                                    const ModelUse& use = {});

/// The model's own description of itself, without weights.
Result<ModelSpec> read_model_spec(const std::string& directory);

/// Lines for whoever loads the model: keys that nobody here knows, which may have meant something,
/// and tensors of parts that are not run.
Result<std::vector<std::string>> opening_remarks(const std::string& path, const ModelUse& use = {});

}  // namespace moeflux
