// Compiled instead of curl_client.cc where libcurl was not found.
#include "base/format.h"
#include "hub/http_client.h"

namespace moeflux::hub {

Result<std::unique_ptr<HttpClient>> HttpClient::create(const HttpOptions&) {
  return make_error(ErrorCode::kUnsupported,
                    "built without libcurl, which downloads need (libcurl4-openssl-dev 7.66 or "
                    "later, then configure anew); meanwhile get the files with: hf download");
}

}  // namespace moeflux::hub
