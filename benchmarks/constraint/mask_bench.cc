// How long masks take over a vocabulary of the size that large models have.
//
//     mask_bench [TOKENS] [TEXTS]
//
// Makes a vocabulary, holds texts to schemas, draws any allowed token and times each mask. Prints
// JSON: milliseconds by the wall and of processor time, which other programs do not disturb. A
// first mask's time has the compilation in it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "constraint/constraint.h"

namespace moeflux {
namespace {

// Bytes, then words, numbers, punctuation and characters of three bytes, as vocabularies have them.
std::vector<std::string> make_vocabulary(size_t count) {
  std::mt19937 random(1);
  static constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxzETAOINSHRDL_";
  static constexpr std::string_view kSigns = "\"{}[]:,.\n ()<>/=-+*\\";
  std::vector<std::string> words;
  std::set<std::string> known;
  for (int byte = 0; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  known.insert(words.begin(), words.end());
  while (words.size() < count) {
    const uint32_t kind = random() % 16;
    std::string word = random() % 2 == 0 ? " " : "";
    const size_t length = 1 + random() % 11;
    for (size_t i = 0; i < length; ++i) {
      if (kind == 0) {
        word += kSigns[random() % kSigns.size()];
      } else if (kind == 1) {
        word += static_cast<char>('0' + random() % 10);
      } else if (kind < 5 && i < 4) {
        const uint32_t code = static_cast<uint32_t>(0x4e00 + random() % 0x5000);
        word += static_cast<char>(0xe0 | (code >> 12));
        word += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
        word += static_cast<char>(0x80 | (code & 0x3f));
      } else {
        // The first letters are the frequent ones.
        word += kLetters[std::min(random() % kLetters.size(), random() % kLetters.size())];
      }
    }
    if (known.insert(word).second) words.push_back(std::move(word));
  }
  return words;
}

std::vector<std::pair<const char*, OutputConstraint>> make_constraints() {
  Json wide = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (int i = 0; i < 60; ++i) {
    const std::string name = formatted("property_{}", i);
    wide["properties"][name] = i % 3 == 0   ? Json{{"type", "string"}}
                               : i % 3 == 1 ? Json{{"type", "integer"}, {"minimum", i}}
                                            : Json{{"enum", Json::array({"red", "green", i})}};
    if (i % 2 == 0) wide["required"].push_back(name);
  }
  const char* person = R"({"type": "object", "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 40},
      "mail": {"type": "string", "format": "email"},
      "born": {"type": "string", "format": "date"},
      "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,6}$"},
      "height": {"type": "number", "minimum": 0.3, "maximum": 2.8},
      "friends": {"type": "array", "maxItems": 4, "items": {"$ref": "#"}}},
      "required": ["name", "mail", "born", "code", "height"], "additionalProperties": false})";
  return {
      {"any object", {.kind = ConstraintKind::kJsonObject}},
      {"person", {.kind = ConstraintKind::kJsonSchema, .text = person}},
      {"60 properties", {.kind = ConstraintKind::kJsonSchema, .text = wide.dump()}},
      {"regex", {.kind = ConstraintKind::kRegex, .text = "([a-z]+, )*[a-z]+\\."}},
      {"lark",
       {.kind = ConstraintKind::kLark,
        .text =
            "start: expr\nexpr: term ((\"+\" | \"-\") term)*\nterm: /[0-9]+/ | \"(\" expr \")\""}}};
}

struct Times {
  std::vector<double> wall_ms;
  std::vector<double> cpu_ms;

  template <typename Work>
  auto measure(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu = std::clock();
    auto done = work();
    cpu_ms.push_back(1e3 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
    wall_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
    return done;
  }
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

Json summary(const Times& times) {
  const auto of = [](const std::vector<double>& values) {
    return Json{{"p50", percentile(values, 0.5)},
                {"p99", percentile(values, 0.99)},
                {"max", percentile(values, 1.0)}};
  };
  return {
      {"count", times.cpu_ms.size()}, {"cpu_ms", of(times.cpu_ms)}, {"wall_ms", of(times.wall_ms)}};
}

// One text of random tokens; its masks after the first.
Status walk(Matcher& matcher, size_t vocabulary, uint32_t seed, Times& masks) {
  std::mt19937 random(seed);
  Result<Matcher::Next> next = matcher.next();
  for (int i = 0; i < 300; ++i) {
    if (!next.ok()) return next.error();
    if (next->must_end) return {};
    auto token = static_cast<TokenId>(random() % vocabulary);
    for (size_t tried = 0; !next->mask.allows(token) && tried <= vocabulary; ++tried) {
      token = static_cast<TokenId>((static_cast<size_t>(token) + 1) % vocabulary);
    }
    MF_RETURN_IF_ERROR(matcher.consume(token));
    next = masks.measure([&] { return matcher.next(); });
  }
  return {};
}

Status run(size_t count, uint32_t texts) {
  const std::vector<std::string> words = make_vocabulary(count);
  std::vector<TokenShape> tokens;
  for (const std::string& word : words) tokens.push_back({.bytes = word});
  Times built;
  MF_ASSIGN_OR_RETURN(const auto tree, built.measure([&] { return TokenTree::make(tokens); }));
  Json report = {{"tokens", count}, {"tree", summary(built)}};
  Times all;
  Times firsts;
  for (const auto& [name, stated] : make_constraints()) {
    Times masks;
    for (uint32_t seed = 0; seed < texts; ++seed) {
      std::shared_ptr<const Constraint> constraint;
      std::unique_ptr<Matcher> matcher;
      const Status first = firsts.measure([&]() -> Status {
        MF_ASSIGN_OR_RETURN(constraint, Constraint::compile(tree, stated));
        MF_ASSIGN_OR_RETURN(matcher, constraint->start());
        const Result<Matcher::Next> next = matcher->next();
        return next.ok() ? Status() : next.error();
      });
      MF_RETURN_IF_ERROR(first);
      MF_RETURN_IF_ERROR(walk(*matcher, count, seed, masks));
    }
    report["masks"][name] = summary(masks);
    all.cpu_ms.insert(all.cpu_ms.end(), masks.cpu_ms.begin(), masks.cpu_ms.end());
    all.wall_ms.insert(all.wall_ms.end(), masks.wall_ms.begin(), masks.wall_ms.end());
  }
  report["masks"]["all"] = summary(all);
  report["first mask, with compilation"] = summary(firsts);
  std::puts(report.dump(1).c_str());
  return {};
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  const size_t tokens = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 248'320;
  const auto texts = static_cast<uint32_t>(argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 20);
  const moeflux::Status done = moeflux::run(tokens, texts);
  if (!done.ok()) std::fprintf(stderr, "mask_bench: %s\n", done.error().message().c_str());
  return done.ok() ? 0 : 1;
}
