// A device without memory or arithmetic: models open on it to be checked, counted and dry-run.
#pragma once

#include <memory>

#include "backend/device.h"

namespace moeflux {

/// Places weights as `like` would, which must outlive it; null: as they are stored.
std::unique_ptr<Device> make_trace_device(const Device* like = nullptr);

/// Address space without memory behind it: views of it have shapes and offsets and are never
/// dereferenced.
std::unique_ptr<Buffer> make_unbacked_buffer(size_t bytes);

}  // namespace moeflux
