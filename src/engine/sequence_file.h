// Sequences in files: snapshots (docs/formats/snapshot.md) that outlive the process.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace moeflux {

/// As Engine::save(), to a file, which is the old one or complete, and on the disk when this
/// returns.
Status save_sequence(Engine& engine, const Sequence& sequence, const std::string& path,
                     std::span<const std::byte> extra = {});
/// As Engine::load(), from a file.
Result<std::vector<std::byte>> load_sequence(Engine& engine, Sequence& sequence,
                                             const std::string& path);

}  // namespace moeflux
