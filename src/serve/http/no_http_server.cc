// Compiled instead of http_server.cc and request_reader.cc where Boost was not found.
#include "base/format.h"
#include "serve/http/http_server.h"

namespace moeflux::serve {

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions, Handler) {
  return make_error(ErrorCode::kUnsupported,
                    "built without Boost, which the HTTP server needs (libboost-dev 1.74)");
}

}  // namespace moeflux::serve
