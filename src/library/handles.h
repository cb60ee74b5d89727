// The objects behind the handles of moeflux.h.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "chat/open_model.h"
#include "chat/session.h"
#include "moeflux/moeflux.h"

struct mf_model {
  std::shared_ptr<moeflux::OpenModel> open;
};

struct mf_sequence {
  std::shared_ptr<moeflux::Session> session;
};

struct mf_bytes {
  std::vector<std::byte> bytes;
};
