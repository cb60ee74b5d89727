// The defaults of absent fields are those of the `tokenizers` library.
#include "text/spaces/metaspace.h"

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/spec_fields.h"
#include "text/spaces/space_symbol.h"

namespace moeflux {

Result<Metaspace> Metaspace::parse(const Json& spec) {
  constexpr std::string_view kWhat = "pre_tokenizer Metaspace";
  const Json& replacement = spec_field(spec, "replacement");
  if (!replacement.is_string() || replacement.get_ref<const std::string&>() != kSpaceSymbol) {
    return make_error(ErrorCode::kUnsupported, "{} replacement {}, expected U+2581", kWhat,
                      json_excerpt(replacement));
  }
  Metaspace metaspace;
  const Json& scheme = spec_field(spec, "prepend_scheme");
  if (scheme == "never") {
    metaspace.prepend_ = Prepend::kNever;
  } else if (scheme == "first") {
    metaspace.prepend_ = Prepend::kFirst;
  } else if (!scheme.is_null() && scheme != "always") {
    return make_error(ErrorCode::kUnsupported,
                      "{} prepend_scheme {}, expected never, first or always", kWhat,
                      json_excerpt(scheme));
  }
  MF_ASSIGN_OR_RETURN(const bool adds, spec_bool(spec, "add_prefix_space", true, kWhat));
  if (!adds && metaspace.prepend_ != Prepend::kNever) {
    return make_error(ErrorCode::kCorruption, "{} has add_prefix_space false, prepend_scheme {}",
                      kWhat, scheme.is_null() ? "always by default" : json_excerpt(scheme));
  }
  MF_ASSIGN_OR_RETURN(metaspace.splits_, spec_bool(spec, "split", true, kWhat));
  return metaspace;
}

std::string Metaspace::apply(std::string_view text, bool is_first) const {
  std::string out = with_symbols(text);
  const bool may = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && is_first);
  if (may && !out.starts_with(kSpaceSymbol)) out.insert(0, kSpaceSymbol);
  return out;
}

}  // namespace moeflux
