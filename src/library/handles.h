// The objects behind the handles of moeflux.h.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "chat/open_model.h"
#include "chat/session.h"
#include "library/answer_box.h"
#include "library/chat_reader.h"
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
  /// A chat as it was read, and views of its calls.
  std::optional<moeflux::ChatReader> chat;
  std::vector<mf_tool_call> calls;
};

struct mf_bytes {
  std::vector<std::byte> bytes;
};
