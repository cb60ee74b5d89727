// Absent flags have the defaults of the `tokenizers` library.
#include "text/vocabulary/added_token_spec.h"

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/spec_fields.h"
#include "text/vocabulary/vocabulary.h"

namespace moeflux {

Result<AddedToken> read_added_token(const Json& spec, int64_t id) {
  constexpr std::string_view kWhat = "added token";
  AddedToken token;
  const Json& content = spec_field(spec, "content");
  if (!content.is_string()) {
    return make_error(ErrorCode::kCorruption, "added token {}, expected one with content",
                      json_excerpt(spec));
  }
  token.content = content.get<std::string>();
  if (id < 0 || id > Vocabulary::kIdMax) {
    return make_error(ErrorCode::kCorruption, "added token \"{}\" has id {}, expected 0 to {}",
                      token.content, id, Vocabulary::kIdMax);
  }
  token.id = static_cast<TokenId>(id);
  MF_ASSIGN_OR_RETURN(token.special, spec_bool(spec, "special", false, kWhat));
  MF_ASSIGN_OR_RETURN(token.single_word, spec_bool(spec, "single_word", false, kWhat));
  MF_ASSIGN_OR_RETURN(token.lstrip, spec_bool(spec, "lstrip", false, kWhat));
  MF_ASSIGN_OR_RETURN(token.rstrip, spec_bool(spec, "rstrip", false, kWhat));
  MF_ASSIGN_OR_RETURN(token.normalized, spec_bool(spec, "normalized", !token.special, kWhat));
  return token;
}

}  // namespace moeflux
