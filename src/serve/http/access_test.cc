#include "serve/http/access.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

Request request_with(Headers headers, std::string method = "GET", std::string path = "/v1/models") {
  return {.method = std::move(method), .path = std::move(path), .headers = std::move(headers)};
}

int status_of(const Request& request, bool has_body, const AccessRules& rules,
              Reach reach = Reach::kLoopback) {
  const auto refusal = check_access(request, has_body, rules, reach);
  return refusal ? refusal->status : 0;
}

TEST(Access, LoopbackIsTheMachineItself) {
  for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.1.2.255", "::1", "[::1]"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"", "0.0.0.0", "::", "128.0.0.1", "127.0.0", "127.0.0.1.evil.example",
                           "127.0.0.256", "127.0.0.1 ", "127..0.1", "127.0.0.-1", "127.0.0.0001"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(Access, KeysAreEqualOrNot) {
  EXPECT_TRUE(same_key("secret", "secret"));
  EXPECT_FALSE(same_key("secreu", "secret"));
  EXPECT_FALSE(same_key("secre", "secret"));
  EXPECT_FALSE(same_key("secretsecret", "secret"));
  EXPECT_FALSE(same_key("", "secret"));
  EXPECT_FALSE(same_key("", ""));
}

TEST(Access, HostOnLoopbackIsALoopbackNameOrAllowed) {
  const AccessRules rules{.allowed_hosts = {"Box.lan"}};
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1:65535", "[::1]", "[::1]:8080",
                           "box.lan", "box.LAN:8080", "localhost:", "0.0.0.0:8080", "[::]",
                           "a.localhost", "A.b.LocalHost:80", "localhost.", "a.localhost.:1"}) {
    EXPECT_TRUE(host_allowed(host, rules, Reach::kLoopback)) << host;
  }
  for (const char* host : {"",
                           ":8080",
                           "evil.example",
                           "evil.example:8080",
                           "localhost.evil.example",
                           "localhost:x",
                           "localhost:1:2",
                           "localhost:123456",
                           "[::1",
                           "[::1]x",
                           "[::1]x:80",
                           "[::2]",
                           "[localhost]",
                           "::1",
                           "127.0.0.1@evil.example",
                           "box.lan.evil.example",
                           "evillocalhost",
                           ".localhost",
                           "localhost..",
                           "0.0.0.0.evil.example",
                           "localhost.evil."}) {
    EXPECT_FALSE(host_allowed(host, rules, Reach::kLoopback)) << host;
  }
}

TEST(Access, HostElsewhereIsWhatIsAllowed) {
  EXPECT_TRUE(host_allowed("any.example", {}, Reach::kNetwork));
  EXPECT_TRUE(host_allowed("any.example", {.allowed_hosts = {"a"}}, Reach::kUnixSocket));
  EXPECT_FALSE(host_allowed("any.example", {.allowed_hosts = {"a"}}, Reach::kNetwork));
  EXPECT_TRUE(host_allowed("a:8080", {.allowed_hosts = {"a"}}, Reach::kNetwork));
}

TEST(Access, OriginIsOursListedOrForeign) {
  const AccessRules rules{.allowed_origins = {"https://chat.example"}};
  const auto kind = [&](const char* origin) { return origin_kind(origin, "localhost:80", rules); };
  EXPECT_EQ(kind(""), OriginKind::kSame);
  EXPECT_EQ(kind("http://localhost:80"), OriginKind::kSame);
  EXPECT_EQ(kind("https://LOCALHOST:80"), OriginKind::kSame);
  EXPECT_EQ(kind("https://chat.example"), OriginKind::kListed);
  for (const char* origin : {"http://chat.example", "https://chat.example:81", "localhost:80",
                             "https://chat.example.evil", "https://evil.https://chat.example"}) {
    EXPECT_EQ(kind(origin), OriginKind::kForeign) << origin;
  }
  EXPECT_EQ(origin_kind("http://", "", rules), OriginKind::kForeign);
  EXPECT_EQ(origin_kind("null", "", {.allowed_origins = {"*"}}), OriginKind::kListed);
}

TEST(Access, ProgramsOfThisMachineMayAskByDefault) {
  for (const char* origin : {"tauri://localhost",
                             "app://obsidian.md",
                             "app://-",
                             "file://",
                             "capacitor://localhost",
                             "ionic://localhost",
                             "vscode-file://vscode-app",
                             "vscode-webview://1d2n3k",
                             "TAURI://a",
                             "http://localhost",
                             "http://localhost:3000",
                             "https://localhost:8443",
                             "http://127.0.0.1",
                             "http://127.0.0.1:5173",
                             "http://127.1.2.3:80",
                             "http://[::1]:3000",
                             "http://[::1]",
                             "http://0.0.0.0:8080",
                             "http://tauri.localhost",
                             "https://LOCALHOST:1"}) {
    const Request request = request_with({{"host", "localhost:80"}, {"origin", origin}});
    EXPECT_EQ(status_of(request, false, {}), 0) << origin;
    EXPECT_EQ(cors_headers(request, {}, false)[0].second, origin);
  }
}

TEST(Access, ForeignPagesMayNotAskByDefault) {
  for (const char* origin : {"null",
                             "http://evil.example",
                             "https://localhost.evil.example",
                             "http://localhostevil",
                             "http://evil.example:80",
                             "http://127.0.0.1.evil.example",
                             "http://127.evil.example",
                             "http://localhost:80.evil.example",
                             "http://localhost@evil.example",
                             "localhost",
                             "app:",
                             "http://[::1].evil.example",
                             "http://[::1",
                             "http://.localhost.evil",
                             "http://192.168.0.2",
                             "chrome-extension://abc",
                             "moz-extension://abc",
                             "https://vscode-webview://",
                             "http://",
                             "http://10.0.0.1:3000",
                             "data://",
                             "http://localhost:x",
                             "http:// localhost"}) {
    EXPECT_FALSE(is_local_origin(origin)) << origin;
    EXPECT_EQ(status_of(request_with({{"host", "localhost:80"}, {"origin", origin}}), false, {}),
              403)
        << origin;
  }
}

TEST(Access, AStarStandsForAllOriginsOfAScheme) {
  const AccessRules rules{.allowed_origins = {"chrome-extension://*"}};
  const auto kind = [&](const char* origin) { return origin_kind(origin, "localhost", rules); };
  EXPECT_EQ(kind("chrome-extension://abc"), OriginKind::kListed);
  EXPECT_EQ(kind("moz-extension://abc"), OriginKind::kForeign);
  EXPECT_EQ(kind("http://chrome-extension://abc"), OriginKind::kForeign);
}

TEST(Access, RulesThatCanMatchNothingAreKnown) {
  for (const char* rule :
       {"*", "null", "https://chat.example", "http://a:8080", "http://[::1]:3000",
        "chrome-extension://*", "http://*", "app://-", "file://"}) {
    EXPECT_TRUE(is_origin_rule(rule)) << rule;
  }
  for (const char* rule :
       {"", "foo", "chat.example", "http://*.site", "https://chat.example/", "https://a/b",
        "http://", "http://a:80", "https://a:443", "https://a:x", "://a", "https://a b",
        "https://a,https://b", "https://user@a", "ht tp://a", "chrome-extension:*"}) {
    EXPECT_FALSE(is_origin_rule(rule)) << rule;
  }
  for (const char* rule : {"box", "box.lan", "box.lan:8080", "192.168.0.2", "[fd00::1]"}) {
    EXPECT_TRUE(is_host_rule(rule)) << rule;
    EXPECT_TRUE(host_allowed(rule, {.allowed_hosts = {rule}}, Reach::kLoopback)) << rule;
  }
  for (const char* rule :
       {"", "*", "*.lan", "http://box", "box/", "fd00::1", "a b", "box:x", "a,b", "box:"}) {
    EXPECT_FALSE(is_host_rule(rule)) << rule;
  }
}

TEST(Access, RefusalsNameTheOptionsThatThereAre) {
  const auto why = [](const Request& request) {
    const auto refusal = check_access(request, false, {}, Reach::kLoopback);
    return refusal ? refusal->message : std::string();
  };
  EXPECT_EQ(why(request_with({{"host", "host.docker.internal"}})),
            "Host 'host.docker.internal' is not allowed here, expected localhost or a name of "
            "--allow-host");
  EXPECT_EQ(why(request_with({{"host", "localhost"}, {"origin", "https://a.example"}})),
            "Origin 'https://a.example' is not allowed here, expected the server's own, one of "
            "this machine's programs or one of --allow-origin");
}

TEST(Access, EitherHeaderMayHaveTheKey) {
  const AccessRules rules{.api_keys = {"one", "two"}};
  const auto with = [&](std::string name, std::string value) {
    return has_key(request_with({{std::move(name), std::move(value)}}), rules);
  };
  EXPECT_TRUE(with("authorization", "Bearer one"));
  EXPECT_TRUE(with("authorization", "bearer  two "));
  EXPECT_TRUE(with("x-api-key", "two"));
  EXPECT_FALSE(with("authorization", "one"));
  EXPECT_FALSE(with("authorization", "Basic one"));
  EXPECT_FALSE(with("authorization", "Bearer "));
  EXPECT_FALSE(with("authorization", "Bearer"));
  EXPECT_FALSE(with("x-api-key", "Bearer one"));
  EXPECT_FALSE(with("x-key", "one"));
  EXPECT_TRUE(has_key(request_with({}), {}));
}

TEST(Access, EachKeyIsAnOwner) {
  const AccessRules rules{.api_keys = {"one", "two"}};
  const auto owner = [&](const std::string& key) {
    return owner_of(request_with({{"x-api-key", key}}), rules);
  };
  EXPECT_EQ(owner("one").size(), 16u);
  EXPECT_NE(owner("one"), owner("two"));
  EXPECT_EQ(owner("one"), owner_of(request_with({{"authorization", "Bearer one"}}), rules));
  EXPECT_EQ(owner("other"), "");
  EXPECT_EQ(owner_of(request_with({{"x-api-key", "one"}}), {}), "");
}

TEST(Access, AdminKeysAreKeysThatSeeMore) {
  const AccessRules both{.api_keys = {"one"}, .admin_keys = {"two"}};
  const Request user = request_with({{"x-api-key", "one"}});
  const Request admin = request_with({{"x-api-key", "two"}});
  EXPECT_FALSE(is_admin(user, both));
  EXPECT_TRUE(is_admin(admin, both));
  EXPECT_FALSE(is_admin(request_with({}), both));
  EXPECT_TRUE(has_key(admin, both));
  EXPECT_NE(owner_of(admin, both), owner_of(user, both));
  EXPECT_TRUE(is_admin(request_with({}), {}));
  const AccessRules admins{.admin_keys = {"two"}};
  EXPECT_FALSE(is_admin(request_with({}), admins));
  EXPECT_TRUE(has_key(request_with({}), admins));
  EXPECT_FALSE(is_admin(user, {.api_keys = {"one"}}));
}

TEST(Access, OpenPathsAreOpenToReadersOnly) {
  const AccessRules rules{.api_keys = {"key"}};
  EXPECT_TRUE(has_key(request_with({}, "GET", "/health"), rules));
  EXPECT_TRUE(has_key(request_with({}, "HEAD", "/health"), rules));
  EXPECT_FALSE(has_key(request_with({}, "POST", "/health"), rules));
  for (const char* path : {"/health/", "//health", "/v1/health", "/", "/page/app.js"}) {
    EXPECT_TRUE(has_key(request_with({}, "GET", path), rules)) << path;  // the same route
  }
  for (const char* path :
       {"/healthy", "/health/a", "/page", "/page/a/b", "/models", "/v1/health/../models", "*"}) {
    EXPECT_FALSE(has_key(request_with({}, "GET", path), rules)) << path;
  }
}

TEST(Access, OnlyJsonIsJson) {
  EXPECT_TRUE(is_json("application/json"));
  EXPECT_TRUE(is_json(" Application/JSON ; charset=utf-8"));
  for (const char* type : {"", "text/plain", "application/jsonp", "application/json-seq",
                           "text/plain; application/json", "multipart/form-data"}) {
    EXPECT_FALSE(is_json(type)) << type;
  }
}

TEST(Access, RefusesInThisOrder) {
  const AccessRules rules{.api_keys = {"key"}};
  const std::pair<std::string, std::string> key = {"x-api-key", "key"};
  EXPECT_EQ(status_of(request_with({{"host", "a"}, {"host", "a"}}), false, rules), 400);
  EXPECT_EQ(status_of(request_with({{"host", "evil.example"}, key}), true, rules), 403);
  EXPECT_EQ(
      status_of(request_with({{"host", "localhost"}, {"origin", "http://a"}, key}), true, rules),
      403);
  EXPECT_EQ(status_of(request_with({{"host", "localhost"}}), true, rules), 401);
  EXPECT_EQ(status_of(request_with({{"host", "localhost"}, key}), true, rules), 415);
  EXPECT_EQ(status_of(request_with({{"host", "localhost"}, key}), false, rules), 0);
  EXPECT_EQ(status_of(request_with({{"host", "localhost"}}, "OPTIONS"), false, rules), 0);
  EXPECT_EQ(status_of(request_with({{"host", "evil.example"}}, "OPTIONS"), false, rules), 403);
}

// LiteLLM sends no type, curl -d that of forms, fetch() of a string that of text.
TEST(Access, OllamasBodiesMayHaveAnyType) {
  using Header = std::pair<std::string, std::string>;
  const Header host = {"host", "localhost"};
  for (const char* path : {"/api/chat", "/api/generate", "/api/show", "/v1/api/chat"}) {
    EXPECT_EQ(status_of(request_with({host}, "POST", path), true, {}), 0) << path;
    for (const char* type : {"", "application/x-www-form-urlencoded", "text/plain;charset=UTF-8",
                             "application/json"}) {
      const Header typed = {"content-type", type};
      EXPECT_EQ(status_of(request_with({host, typed}, "POST", path), true, {}), 0) << path << type;
      for (const char* page : {"http://evil.example", "null"}) {
        EXPECT_EQ(status_of(request_with({host, typed, {"origin", page}}, "POST", path), true, {}),
                  403)
            << path << type;
      }
    }
  }
  const Header form = {"content-type", "application/x-www-form-urlencoded"};
  EXPECT_EQ(status_of(request_with({host, form}, "POST", "/v1/chat/completions"), true, {}), 415);
  EXPECT_EQ(status_of(request_with({host, form}, "POST", "/apichat"), true, {}), 415);
}

TEST(Access, OnlyListedPagesAreToldThatTheyMayRead) {
  const AccessRules rules{.allowed_origins = {"https://chat.example"}};
  EXPECT_TRUE(cors_headers(request_with({{"host", "a"}}), rules, true).empty());
  EXPECT_TRUE(
      cors_headers(request_with({{"host", "a"}, {"origin", "http://a"}}), rules, true).empty());
  EXPECT_TRUE(
      cors_headers(request_with({{"host", "a"}, {"origin", "http://b"}}), rules, true).empty());
  Request request = request_with({{"host", "a"}, {"origin", "https://chat.example"}});
  EXPECT_EQ(cors_headers(request, rules, false).size(), 3u);
  request.headers.emplace_back("access-control-request-headers", "x-a, b\r\nSet-Cookie: c");
  for (const auto& [name, value] : cors_headers(request, rules, true)) {
    EXPECT_NE(name, "Access-Control-Allow-Headers");  // a list that is none is not repeated
  }
}

}  // namespace
}  // namespace moeflux::serve
