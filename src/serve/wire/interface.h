// An interface over HTTP: a folder of serve/ with its routes, its words for what is wrong and the
// form of its streams. Every <folder>/<name>_interface.cc defines `const Interface
// <name>_interface`, and the build lists them; see docs/ADDING_AN_INTERFACE.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "serve/wire/api_error.h"
#include "serve/wire/exchange.h"

namespace moeflux::serve {

struct Call;

enum class RouteKind : uint8_t {
  kUsual,    // of a model, which its body names
  kTexts,    // the same; its lists are of texts, each of which has the context to itself
  kNoModel,  // of the service, or of models that need not be loaded
  kAtOnce,   // the same, answered from memory, whatever else goes on
};

struct Route {
  std::string_view method;
  /// As route_path() has it. "{id}" stands for one part of a path, "{name}" at its end for one or
  /// more.
  std::string_view path;
  void (*handle)(Call& call);
  RouteKind kind = RouteKind::kUsual;
  /// An empty chunk of its stream, which tells of a model that is being loaded; null: none does.
  Json (*empty_chunk)(const std::string& model) = nullptr;
  /// Answers a request of a model that is not loaded and need not be; false: it is to be loaded.
  bool (*without_model)(const Call& call, const std::string& model) = nullptr;
};

/// How a stream of answers looks from outside.
struct StreamForm {
  std::string_view content_type = "text/event-stream; charset=utf-8";
  std::string_view keep_alive = ": keep-alive\n\n";  // what to send in silence; empty: nothing
  bool is_events = true;                             // which can be numbered, and come back to
};

struct Interface {
  /// All paths below it are this interface's, whether a route knows them or not: "/api". One
  /// interface, of all, has "": all that is nobody else's.
  std::string_view home;
  std::span<const Route> routes;
  /// The body of an answer that says what is wrong.
  std::string (*error_text)(const ApiError& error, std::string_view request_id);
  StreamForm stream = {};
  /// Its clients send JSON under any Content-Type.
  bool takes_any_type = false;
  /// Its requests say for how long their model stays loaded, by `keep_alive`.
  bool keeps_alive = false;
  /// Requests without `stream` ask for one.
  bool streams_by_default = false;
};

/// All there are. Generated; see CMakeLists.txt.
std::span<const Interface* const> interfaces();
/// Routes of all interfaces, in the same order.
size_t count_routes();

/// A path as routes are written, which clients write in many ways: without /v1, doubled slashes and
/// slashes at its end.
std::string route_path(std::string_view path);
/// Whether it begins with /v1.
bool has_version(std::string_view path);

/// The route and interface that answer a request.
struct Routed {
  const Interface* interface = nullptr;  // whose words are spoken there
  const Route* route = nullptr;          // null: none does
  size_t number = 0;                     // of the route, from 0; without one count_routes()
  std::string id = {};                   // what the path has in place of "{id}" or "{name}"
  std::string allowed = {};              // methods that the path takes, comma-separated
};
Routed find_route(std::string_view method, std::string_view path);

/// Where the answer to a request goes, and in whose words.
struct AnswerTarget {
  std::shared_ptr<Response> response;
  const Interface* interface = nullptr;
  std::string request_id = {};  // some interfaces repeat it
  /// The model that answers stays as long as the answer is being made.
  std::shared_ptr<void> model = {};

  static AnswerTarget of(const Request& request, std::shared_ptr<Response> response);
  void answer(const Json& json) const;
  /// Answers what is wrong, in place of an answer. With headers beside those of all errors.
  void fail(const ApiError& error, Headers headers = {}) const;
  void begin_stream() const;
};

}  // namespace moeflux::serve
