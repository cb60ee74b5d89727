// The request at hand, as handlers of routes get it.
#pragma once

#include <string>

#include "serve/context.h"
#include "serve/models.h"
#include "serve/service_state.h"
#include "serve/wire/interface.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {

struct Call {
  ServiceState& state;
  Models& models;
  const Request& request;
  AnswerTarget target;
  Json body = {};       // of POST
  std::string id = {};  // of the path
  /// It may compute for long here; where it may not, what does so asks for to be called again.
  bool may_take_long = false;
  bool is_put_off = false;
  /// It is put off to the thread that evaluates texts beside the scheduler, in turns with it.
  bool evaluates = false;
  /// The model that the request names; null for routes of none.
  ModelLease model = {};

  Context& service() const { return *model; }
  /// A loaded model for what tells of it, which loads none: the one that `model` of the query
  /// names, or the usual one. Null where it is not loaded, which has been answered with `nothing`,
  /// or where there is none such, which has been answered too.
  ModelLease find_loaded(const Json& nothing) const;
  void answer(const Json& json) const { target.answer(json); }
  void fail(const ApiError& error) const { target.fail(error); }
};

/// Answers for paths that other servers have and this one has nothing for.
void not_offered(Call& call);

/// The last part of a path.
inline std::string folder_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace moeflux::serve
