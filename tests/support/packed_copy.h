// Packs a model folder into another one.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "convert/pack/model_packer.h"

namespace moeflux::testing {

inline Status pack_folder(const std::string& from, const std::string& to, const PackFormat& format,
                          PackRun run = {}) {
  MF_ASSIGN_OR_RETURN(PackSource source, open_pack_source(from));
  MF_ASSIGN_OR_RETURN(const auto packer, ModelPacker::create(std::move(source), format));
  run.directory = to;
  if (run.threads == 0) run.threads = 2;
  return packer->pack(run);
}

/// A failure is a gtest failure.
inline void expect_packed(const std::string& from, const std::string& to,
                          const PackFormat& format) {
  const Status packed = pack_folder(from, to, format);
  EXPECT_TRUE(packed.ok()) << (packed.ok() ? "" : packed.error().to_string());
}

}  // namespace moeflux::testing
