#include "serve/wire/api_error.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

TEST(ApiError, NamesNoFolderOfTheServer) {
  const auto told = [](const std::string& message) {
    return api_error(Error(ErrorCode::kIo, message)).message;
  };
  EXPECT_EQ(told("/srv/a b/models/x: chat template: no"), "x: chat template: no");
  EXPECT_EQ(told("/srv/models/x/: chat template: no"), "x: chat template: no");
  EXPECT_EQ(told("models/x/a.json: cannot write: No space"), "a.json: cannot write: No space");
  EXPECT_EQ(told("no template in /srv/models/x, expected one"), "no template in x, expected one");
  EXPECT_EQ(told("cannot move '/a/b/c' to \"/d/e\""), "cannot move 'c' to \"e\"");
  // Texts that are not paths.
  for (const char* plain : {"roles must alternate user/assistant", "say /think: or not",
                            "text is text/plain", "read 3/4 of it: ended", "", "/"}) {
    EXPECT_EQ(told(plain), std::string(plain) == "/" ? "" : plain);
  }
}

TEST(ModelNameError, KeepsNamesAndAddressesWhole) {
  const auto told = [](const std::string& message) {
    return model_name_error(Error(ErrorCode::kIo, message)).message;
  };
  for (const char* plain :
       {"org/model: no such model", "org/model has no 'Q9', but: Q4_0 (1 B), Q8_0 (2 B)",
        "\"../../x\": expected ORG/NAME", "pub/a is not deleted: it is in a folder",
        "http://hub/api/models/org/m?blobs=true: Couldn't connect to server"}) {
    EXPECT_EQ(told(plain), plain);
  }
  EXPECT_EQ(told("/srv/a b/hub: 1 B are free"), "hub: 1 B are free");
  EXPECT_EQ(told("org/m is not in /srv/hub"), "org/m is not in hub");
}

}  // namespace
}  // namespace moeflux::serve
