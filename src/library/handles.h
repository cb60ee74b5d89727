// The objects behind the handles of moeflux.h.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "chat/open_model.h"
#include "chat/session.h"
#include "library/answer_box.h"
#include "library/service_host.h"
#include "moeflux/moeflux.h"

struct mf_model {
  std::shared_ptr<moeflux::OpenModel> open;
};

struct mf_sequence {
  std::shared_ptr<moeflux::Session> session;
};

struct mf_service {
  std::shared_ptr<moeflux::ServiceHost> host;
};

struct mf_answer {
  std::shared_ptr<moeflux::ServiceHost> host;
  std::shared_ptr<moeflux::AnswerBox> box;
  moeflux::AnswerPiece piece;      // the last result of mf_answer_next()
  std::vector<mf_header> headers;  // views of it
};

struct mf_bytes {
  std::vector<std::byte> bytes;
};
