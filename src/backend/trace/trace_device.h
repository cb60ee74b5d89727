// A device without memory or arithmetic: models open on it to be checked, counted and dry-run.
#pragma once

#include <memory>

#include "backend/device.h"

namespace moeflux {

std::unique_ptr<Device> make_trace_device();

/// Address space without memory behind it: views of it have shapes and offsets and are never
/// dereferenced.
std::unique_ptr<Buffer> make_unbacked_buffer(size_t bytes);

}  // namespace moeflux
