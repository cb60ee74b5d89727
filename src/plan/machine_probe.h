// Measures what limits a model on this machine: reads of its experts from the drive, and matrix
// products. plan/memory_bandwidth measures memory.
#pragma once

#include "backend/device.h"
#include "base/result.h"
#include "io/drive_probe.h"
#include "io/reader_factory.h"
#include "load/model_loader.h"

namespace moeflux {

/// Random reads of as many bytes as an expert of the model has, from the file that holds its first.
/// Fails with kNotFound for a model without routed experts or without files, and as probe_drive().
Result<DriveProbe> probe_expert_reads(const LoadedModel& model, IoMode mode, double seconds);

/// Bytes per second of random reads as large as a drive takes at once, from the file that holds a
/// model's first layer. Fails as probe_expert_reads(), for a model without files.
Result<double> probe_layer_reads(const LoadedModel& model, IoMode mode, double seconds);

/// Stored bytes per second that so many threads bring into the order in which `device` computes
/// with them: of a piece of the model's first such matrix of a layer. 0 where it has none. Fails
/// with kResourceExhausted.
Result<double> measure_arranging(const LoadedModel& model, Device& device, int threads,
                                 double seconds);

/// Multiply-adds per second of the best of several products of 512 vectors with a 4-bit matrix as
/// the device prefers it.
Result<double> measure_multiply_adds(Device& device, double seconds);

}  // namespace moeflux
