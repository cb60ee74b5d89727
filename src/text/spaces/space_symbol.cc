// One pass a text; the cuts look at every symbol.
#include "text/spaces/space_symbol.h"

namespace moeflux {

std::string with_spaces(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool is_space = text.substr(at).starts_with(kSpaceSymbol);
    out.push_back(is_space ? ' ' : text[at]);
    at += is_space ? kSpaceSymbol.size() : 1;
  }
  return out;
}

std::string with_symbols(std::string_view text) {
  std::string out;
  for (const char c : text) c == ' ' ? void(out += kSpaceSymbol) : out.push_back(c);
  return out;
}

Result<PreTokenizer> cuts_before_spaces(const std::vector<CharacterBpe::Symbol>& symbols) {
  bool knows_space = false;
  for (const CharacterBpe::Symbol& symbol : symbols) {
    knows_space = knows_space || symbol.text == kSpaceSymbol;
    std::string_view rest = symbol.text;
    while (rest.starts_with(kSpaceSymbol)) rest.remove_prefix(kSpaceSymbol.size());
    if (symbol.is_unused || rest.find(kSpaceSymbol) != rest.npos) return PreTokenizer();
  }
  constexpr std::string_view kCuts[] = {R"(\x{2581}*[^\x{2581}]+|\x{2581}+)"};
  if (!knows_space) return PreTokenizer();
  return PreTokenizer::create(kCuts);
}

}  // namespace moeflux
