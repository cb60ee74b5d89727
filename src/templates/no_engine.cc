// Stands in for the engine in a build without Rust.
#include "base/format.h"
#include "templates/template_engine.h"

namespace moeflux {

bool has_template_engine() { return false; }

Result<std::unique_ptr<TemplateEngine>> compile_template(std::string_view, std::string_view what) {
  return make_error(ErrorCode::kUnsupported,
                    "{}: this moeflux was built without Rust, which chat templates need "
                    "(tools/install_deps.sh and tools/fetch_crates.sh, then configure again)",
                    what);
}

}  // namespace moeflux
