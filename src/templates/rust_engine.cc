// The engine of rust/, behind its C interface.

#include "base/format.h"
#include "templates/rust_interface.h"
#include "templates/template_engine.h"

namespace moeflux {
namespace {

std::string take(moeflux_template_text text) {
  std::string taken(reinterpret_cast<const char*>(text.data), text.size);
  moeflux_template_free_text(text);
  return taken;
}

Error failure(int32_t kind, std::string_view what, const std::string& message, uint64_t line) {
  const ErrorCode code =
      kind == kTemplateLimit ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument;
  if (kind == kTemplateRaised) return make_error(code, "{} refuses: {}", what, message);
  if (line == 0) return make_error(code, "{}: {}", what, message);
  return make_error(code, "{}, line {}: {}", what, line, message);
}

class RustEngine final : public TemplateEngine {
 public:
  RustEngine(moeflux_template* compiled, std::string_view what)
      : compiled_(compiled), what_(what) {}
  ~RustEngine() override { moeflux_template_free(compiled_); }
  RustEngine(const RustEngine&) = delete;
  RustEngine& operator=(const RustEngine&) = delete;

  Result<std::string> render(const Json& variables, const TemplateTime& now,
                             const TemplateLimits& limits) const override {
    const moeflux_template_options options{limits.fuel, limits.output_bytes_max,
                                           limits.milliseconds_max, now};
    const std::string context = variables.dump(-1, ' ', false, Json::error_handler_t::replace);
    moeflux_template_text text{};
    uint64_t line = 0;
    const int32_t kind =
        moeflux_template_render(compiled_, context.data(), context.size(), &options, &text, &line);
    std::string taken = take(text);
    if (kind == 0) return taken;
    return failure(kind, what_, taken, line);
  }

 private:
  moeflux_template* compiled_;
  std::string what_;
};

}  // namespace

bool has_template_engine() { return true; }

Result<std::unique_ptr<TemplateEngine>> compile_template(std::string_view text,
                                                         std::string_view what) {
  moeflux_template* compiled = nullptr;
  moeflux_template_text message{};
  uint64_t line = 0;
  const int32_t kind =
      moeflux_template_compile(text.data(), text.size(), &compiled, &message, &line);
  if (kind != 0) return failure(kind, what, take(message), line);
  return std::unique_ptr<TemplateEngine>(std::make_unique<RustEngine>(compiled, what));
}

}  // namespace moeflux
