// The web page and its files. They hold nothing of anybody, so no key is needed for them; what the
// page asks for does need one.
#include <algorithm>
#include <string>

#include "serve/call.h"
#include "serve/page/page.h"

namespace moeflux::serve {
namespace {

// Nothing but this server is asked for anything, whatever an answer of a model contains.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr std::string_view kIndex = "index.html";

const PageFile* find_file(std::string_view name) {
  const auto files = page_files();
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.name == name; });
  return found == files.end() ? nullptr : &*found;
}

void send_file(const Call& call, const PageFile& file) {
  // A name with a hash means the same bytes for ever; the index is asked for anew.
  const bool is_index = file.name == kIndex;
  call.target.response->send(
      200,
      {{"Content-Type", std::string(file.type) + "; charset=utf-8"},
       {"Content-Encoding", "gzip"},
       {"Cache-Control", is_index ? "no-cache" : "public, max-age=31536000, immutable"},
       {"Content-Security-Policy", std::string(kPolicy)},
       {"X-Content-Type-Options", "nosniff"},
       {"Referrer-Policy", "no-referrer"},
       {"Vary", "Accept"}},
      std::string(file.gzip));
}

// Ollama's clients look here whether anybody is there; browsers want a page.
void index(Call& call) {
  const PageFile* file = find_file(kIndex);
  const bool wants_page =
      header(call.request, "accept").find("text/html") != std::string_view::npos;
  if (wants_page && file != nullptr) return send_file(call, *file);
  call.target.response->send(200, {{"Content-Type", "text/plain; charset=utf-8"}},
                             "moeflux is running, Ollama is spoken\n");
}

void page_file(Call& call) {
  const PageFile* file = find_file(call.id);
  if (file != nullptr) return send_file(call, *file);
  call.fail({.status = 404,
             .type = "not_found_error",
             .message = page_files().empty()
                            ? "this build has no page; `make web` builds it where Node.js is"
                            : "the page has no such file; load it again"});
}

constexpr Route kPageRoutes[] = {
    {"GET", "/", &index, RouteKind::kAtOnce},
    {"GET", "/page/{id}", &page_file, RouteKind::kAtOnce},
};

}  // namespace

extern const Interface page_interface = {
    .home = "/page", .routes = kPageRoutes, .error_text = &error_text};

}  // namespace moeflux::serve
