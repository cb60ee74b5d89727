// Opens a model folder: config, tensor index, family, weights on a device, and where the experts
// lie.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "experts/expert_table.h"
#include "model/model.h"
#include "model/weight_store.h"

namespace moeflux {

struct LoadedModel {
  TensorIndex index;
  std::vector<std::unique_ptr<Buffer>> buffers;  // of the dense weights
  std::unique_ptr<Model> model;
  ExpertTable experts;
  DenseSizes dense;
  /// What the weights are taken to be where the folder holds none; empty when it does.
  std::string assumed_weights;

  const ModelSpec& spec() const { return model->spec(); }
};

/// Fails with kNotFound, saying what is there instead, unless `directory` is a folder.
Status check_model_folder(const std::string& directory);

/// Fails with the file, key or tensor that is wrong. The device must outlive the result.
Result<std::unique_ptr<LoadedModel>> load_model(const std::string& directory, Device& device,
                                                WeightLoading loading);

/// For inspection: checks everything and reads no weights. A folder that has config.json and no
/// *.safetensors is described with weights as assumed, or as its config says.
Result<std::unique_ptr<LoadedModel>> describe_model(const std::string& directory, Device& device,
                                                    const AssumedFormat& assumed);

/// The model's own description of itself, without weights.
Result<ModelSpec> read_model_spec(const std::string& directory);

}  // namespace moeflux
