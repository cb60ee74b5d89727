// Compiled where Boost was not found.
#include <gtest/gtest.h>

#include "serve/http/http_server.h"

namespace moeflux::serve {
namespace {

TEST(NoHttpServer, SaysWhatIsMissing) {
  const auto server = HttpServer::start({}, [](Request, std::shared_ptr<Response>) {});
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(server.error().message().find("Boost"), std::string::npos);
}

}  // namespace
}  // namespace moeflux::serve
