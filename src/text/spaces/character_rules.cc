// Each section is held to the few forms that converters write.
#include "text/spaces/character_rules.h"

#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/spec_fields.h"
#include "text/spaces/space_symbol.h"

namespace moeflux {
namespace {

constexpr size_t kStepsMax = 16;

bool is_text(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

bool replaces(const Json& spec, std::string_view from, std::string_view to) {
  return is_text(spec_field(spec_field(spec, "pattern"), "String"), from) &&
         is_text(spec_field(spec, "content"), to);
}

// The items of a Sequence, or the one thing in place of it; none for null.
Result<std::vector<const Json*>> steps_of(const Json& spec, std::string_view list_key,
                                          std::string_view what) {
  std::vector<const Json*> steps;
  if (spec.is_null()) return steps;
  MF_ASSIGN_OR_RETURN(const std::string type, spec_type(spec, what));
  if (type != "Sequence") {
    steps.push_back(&spec);
    return steps;
  }
  MF_ASSIGN_OR_RETURN(const Json* list, spec_list(spec, list_key, what));
  if (list->size() > kStepsMax) {
    return make_error(ErrorCode::kUnsupported, "{} of {} steps, expected at most {}", what,
                      list->size(), kStepsMax);
  }
  for (const Json& item : *list) steps.push_back(&item);
  return steps;
}

Status read_normalizer(const Json& spec, CharacterRules* rules) {
  constexpr std::string_view kWhat = "normalizer";
  MF_ASSIGN_OR_RETURN(const auto steps, steps_of(spec, "normalizers", kWhat));
  for (const Json* step : steps) {
    MF_ASSIGN_OR_RETURN(const std::string type, spec_type(*step, kWhat));
    const bool prepends = type == "Prepend" && is_text(spec_field(*step, "prepend"), kSpaceSymbol);
    bool& rule = prepends ? rules->prepends_space : rules->replaces_spaces;
    if ((!prepends && !(type == "Replace" && replaces(*step, " ", kSpaceSymbol))) || rule) {
      return make_error(ErrorCode::kUnsupported,
                        "normalizer {}, expected a Prepend of U+2581 and a Replace of spaces by it "
                        "with byte_fallback, each once",
                        json_excerpt(*step));
    }
    rule = true;
  }
  if (!rules->prepends_space || rules->replaces_spaces) return {};
  return make_error(ErrorCode::kUnsupported, "normalizer Prepend without a Replace of spaces");
}

Status read_pre_tokenizer(const Json& spec, CharacterRules* rules) {
  constexpr std::string_view kWhat = "pre_tokenizer";
  MF_ASSIGN_OR_RETURN(const auto steps, steps_of(spec, "pretokenizers", kWhat));
  for (const Json* step : steps) {
    MF_ASSIGN_OR_RETURN(const std::string type, spec_type(*step, kWhat));
    if (type == "Metaspace" && !rules->metaspace) {
      MF_ASSIGN_OR_RETURN(rules->metaspace, Metaspace::parse(*step));
      continue;
    }
    // Gemma's files split at spaces when the normalizer has left none.
    const bool is_idle = type == "Split" && rules->replaces_spaces &&
                         is_text(spec_field(spec_field(*step, "pattern"), "String"), " ");
    if (is_idle) continue;
    return make_error(ErrorCode::kUnsupported,
                      "pre_tokenizer {}, expected one Metaspace, or a Split by the spaces that the "
                      "normalizer replaces, with byte_fallback",
                      json_excerpt(*step));
  }
  return {};
}

Status read_decoder(const Json& spec, CharacterRules* rules) {
  constexpr std::string_view kWhat = "decoder";
  MF_ASSIGN_OR_RETURN(const auto steps, steps_of(spec, "decoders", kWhat));
  constexpr std::string_view kOrder[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
  bool is_known = steps.size() == 3 || steps.size() == 4;
  for (size_t i = 0; is_known && i < steps.size(); ++i) {
    is_known = is_text(spec_field(*steps[i], "type"), kOrder[i]);
  }
  is_known = is_known && replaces(*steps[0], kSpaceSymbol, " ");
  if (is_known && steps.size() == 4) {
    const Json& strip = *steps[3];
    const Json& start = spec_field(strip, "start");
    is_known = is_text(spec_field(strip, "content"), " ") && spec_field(strip, "stop") == 0 &&
               (start == 0 || start == 1);
    rules->strips_first_space = start == 1;
  }
  if (is_known) return {};
  return make_error(ErrorCode::kUnsupported,
                    "decoder {}, expected a Replace of U+2581 by a space, ByteFallback, Fuse and "
                    "perhaps a Strip of one space at the start, or ByteLevel",
                    json_excerpt(spec));
}

}  // namespace

std::string CharacterRules::normalize(std::string_view content) const {
  std::string text = replaces_spaces ? with_symbols(content) : std::string(content);
  if (prepends_space && !text.empty()) text.insert(0, kSpaceSymbol);
  return text;
}

Result<CharacterRules> read_character_rules(const Json& file) {
  CharacterRules rules;
  MF_RETURN_IF_ERROR(read_normalizer(spec_field(file, "normalizer"), &rules));
  MF_RETURN_IF_ERROR(read_pre_tokenizer(spec_field(file, "pre_tokenizer"), &rules));
  MF_RETURN_IF_ERROR(read_decoder(spec_field(file, "decoder"), &rules));
  return rules;
}

}  // namespace moeflux
