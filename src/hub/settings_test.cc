#include "hub/settings.h"

#include <gtest/gtest.h>

#include <map>

#include "hub/fetcher.h"

namespace moeflux::hub {
namespace {

Result<HubSettings> settings_of(std::map<std::string, std::string> variables) {
  return hub_settings([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(HubSettings, TheCacheIsWhereTheFirstVariableSays) {
  EXPECT_EQ(settings_of({{"HOME", "/h"}})->cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(settings_of({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})->cache, "/x/huggingface/hub");
  EXPECT_EQ(settings_of({{"HOME", "/h"}, {"HF_HOME", "~/f"}})->cache, "/h/f/hub");
  EXPECT_EQ(settings_of({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/c"}})->cache, "/c");
  EXPECT_FALSE(settings_of({}).ok());
}

TEST(HubSettings, ATokenNeverTravelsInTheClear) {
  const std::string home = "/nowhere";
  EXPECT_TRUE(settings_of({{"HOME", home}, {"HF_ENDPOINT", "http://127.0.0.1:8000/"}}).ok());
  EXPECT_TRUE(settings_of({{"HOME", home}, {"HF_ENDPOINT", "http://[::1]:8000"}}).ok());
  for (const char* wrong : {"http://example.com", "ftp://x", "https://u@x", "https://x y", "x",
                            "http://127.0.0.1.evil.com", "https://x:0", "https://x:99999"}) {
    EXPECT_FALSE(settings_of({{"HOME", home}, {"HF_ENDPOINT", wrong}}).ok()) << wrong;
  }
  EXPECT_FALSE(settings_of({{"HOME", home}, {"HF_TOKEN", "a\r\nHost: b"}}).ok());
  EXPECT_EQ(settings_of({{"HOME", home}, {"HF_TOKEN", " abc\n"}})->token, "abc");
}

TEST(Redirect, LeadsToHttpsOrStaysOnThisMachine) {
  const Url hub = *parse_url("https://huggingface.co/a");
  const Url here = *parse_url("http://127.0.0.1:80/a");
  EXPECT_TRUE(check_redirect(hub, *parse_url("https://cdn.example/x")).ok());
  EXPECT_FALSE(check_redirect(hub, *parse_url("http://cdn.example/x")).ok());
  EXPECT_FALSE(check_redirect(hub, here).ok());
  EXPECT_TRUE(check_redirect(here, *parse_url("http://localhost:1/x")).ok());
  EXPECT_FALSE(check_redirect(here, *parse_url("http://example.com/x")).ok());
  EXPECT_FALSE(parse_url("file:///etc/passwd").ok());
}

TEST(Origin, IsSchemeHostAndPort) {
  const Url hub = *parse_url("https://Hub.example/a");
  EXPECT_TRUE(hub.has_origin_of(*parse_url("https://hub.example:443/b?c")));
  EXPECT_FALSE(hub.has_origin_of(*parse_url("http://hub.example/")));
  EXPECT_FALSE(hub.has_origin_of(*parse_url("https://hub.example:444/")));
  EXPECT_FALSE(hub.has_origin_of(*parse_url("https://hub.example.evil/")));
}

TEST(EscapedPath, KeepsWhatAddressesMayHave) {
  EXPECT_EQ(escaped_path("a b/c%d?e#.gguf"), "a%20b/c%25d%3Fe%23.gguf");
}

}  // namespace
}  // namespace moeflux::hub
