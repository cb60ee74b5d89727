// A fuzz run without a fuzzer: every file of the given corpus folders, then a fixed number of
// mutations of them, the same in each run.
//
//   x_fuzz_replay MUTATIONS CORPUS_FOLDER...
//
// When an input crashes, MOEFLUX_TEST_REPLAY_LAST=FILE in the environment keeps it: each input is
// written there before it is run.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kInputBytesMax = 1 << 16;

/// Bytes and numbers at which parsers change their minds.
constexpr const char* kFragments[] = {"{",
                                      "}",
                                      "[",
                                      "]",
                                      "\"",
                                      ":",
                                      ",",
                                      "\\",
                                      "\\u0000",
                                      "-1",
                                      "0",
                                      "1e999",
                                      "null",
                                      "true",
                                      "1.5",
                                      "\xff",
                                      "\n",
                                      "{}",
                                      "[[[[[[",
                                      "9223372036854775808",
                                      "..",
                                      "(?=",
                                      "\\p{",
                                      "(.*)*",
                                      "{% ",
                                      "{{",
                                      "%}",
                                      "[^",
                                      "\xed\xa0\x80",
                                      "18446744073709551615"};

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  /// One to four mutations of one of the seeds.
  std::string next() {
    std::string input = pick(seeds_);
    for (size_t left = 1 + below(4); left > 0; --left) mutate(input);
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
    return input;
  }

 private:
  size_t below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  /// A stretch [first, first + second) of the text, mostly short.
  std::pair<size_t, size_t> stretch(const std::string& text) {
    const size_t begin = below(text.size() + 1);
    const size_t rest = text.size() - begin;
    return {begin, std::min(rest, below(4) == 0 ? below(rest + 1) : below(17))};
  }

  void mutate(std::string& text) {
    const auto [begin, size] = stretch(text);
    switch (below(8)) {
      case 0:  // flip a bit
        if (begin < text.size()) text[begin] = static_cast<char>(text[begin] ^ (1 << below(8)));
        break;
      case 1:  // overwrite a byte
        if (begin < text.size()) text[begin] = static_cast<char>(below(256));
        break;
      case 2:  // remove a stretch
        text.erase(begin, size);
        break;
      case 3:  // double a stretch
        text.insert(begin, text.substr(begin, size));
        break;
      case 4:  // move a stretch
        move_stretch(text, begin, size);
        break;
      case 5:  // splice in a stretch of another seed
        splice(text, begin);
        break;
      case 6:  // insert a fragment
        text.insert(begin, kFragments[below(std::size(kFragments))]);
        break;
      case 7:  // cut
        text.resize(begin);
        break;
    }
  }

  void move_stretch(std::string& text, size_t begin, size_t size) {
    const std::string moved = text.substr(begin, size);
    text.erase(begin, size);
    text.insert(below(text.size() + 1), moved);
  }

  void splice(std::string& text, size_t at) {
    const std::string& other = pick(seeds_);
    const auto [begin, size] = stretch(other);
    text.replace(at, std::min(size, text.size() - at), other, begin, size);
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_{20250601};  // any fixed seed; the sequence is the standard's
};

void run(const std::string& input) {
  if (const char* last = std::getenv("MOEFLUX_TEST_REPLAY_LAST")) {
    std::ofstream(last, std::ios::binary) << input;
  }
  // A copy of exactly this size: sanitizers see a read past the end, which a string's
  // terminator would hide.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

/// The files of a folder in order of their names.
std::vector<std::string> read_folder(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

}  // namespace

int main(int argc, char** argv) {
  size_t mutations = 0;
  const char* count = argc > 2 ? argv[1] : "";
  if (std::from_chars(count, count + std::strlen(count), mutations).ec != std::errc()) {
    std::fprintf(stderr, "usage: %s MUTATIONS CORPUS_FOLDER...\n", argv[0]);
    return 2;
  }
  std::vector<std::string> seeds;
  for (int i = 2; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      std::fprintf(stderr, "%s is not a folder, expected a corpus\n", argv[i]);
      return 2;
    }
    for (std::string& text : read_folder(argv[i])) seeds.push_back(std::move(text));
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "no files in the given folders, expected a corpus\n");
    return 2;
  }
  run("");
  for (const std::string& seed : seeds) run(seed);
  const size_t seed_count = seeds.size();
  Mutator mutator(std::move(seeds));
  for (size_t i = 0; i < mutations; ++i) run(mutator.next());
  std::printf("%zu corpus files and %zu mutations of them\n", seed_count, mutations);
  return 0;
}
