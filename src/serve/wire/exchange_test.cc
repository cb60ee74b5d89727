#include "serve/wire/exchange.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

TEST(Exchange, TheFirstHeaderOfANameCounts) {
  const Request request{.headers = {{"host", "a"}, {"x-id", "1"}, {"x-id", "2"}}};
  EXPECT_EQ(header(request, "x-id"), "1");
  EXPECT_EQ(header(request, "host"), "a");
  EXPECT_EQ(header(request, "accept"), "");
}

}  // namespace
}  // namespace moeflux::serve
