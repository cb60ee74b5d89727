#include "serve/page/page.h"

#include <gtest/gtest.h>

#include <string>

#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

TEST(Page, FilesAreCompressedAndBelowTheirBound) {
  size_t bytes = 0;
  for (const PageFile& file : page_files()) {
    ASSERT_GE(file.gzip.size(), 20u) << file.name;
    EXPECT_EQ(file.gzip.substr(0, 2), "\x1f\x8b") << file.name;
    if (file.name != "licences.txt") bytes += file.gzip.size();
  }
  EXPECT_LT(bytes, 250'000u);
}

TEST_F(ServiceTest, PageFilesThatAreNotThereAreNotFound) {
  const auto service = start();
  EXPECT_EQ(get(*service, "/page/nothing.js")->status(), 404);
  EXPECT_EQ(get(*service, "/page/../index.html")->status(), 404);
}

TEST_F(ServiceTest, OllamaIsGreetedAtTheAddressOfThePage) {
  const auto service = start();
  EXPECT_EQ(get(*service, "/")->wait(), "moeflux is running, Ollama is spoken\n");
}

}  // namespace
}  // namespace moeflux::serve
