// Events instead of a tree: vocab and merges go straight into vectors, all else into a Json.
#include "text/formats/tokenizer_file.h"

#include "base/format.h"
#include "base/json_problem.h"

namespace moeflux {
namespace {

class Reader {
 public:
  explicit Reader(TokenizerFile* file) : file_(file) {}

  const std::string& problem() const { return problem_; }

  // The events of Json::sax_parse. Returning false stops the parser.
  bool null() { return scalar(Json(nullptr)); }
  bool boolean(bool value) { return scalar(Json(value)); }
  bool number_float(Json::number_float_t value, const std::string&) { return scalar(Json(value)); }
  bool binary(Json::binary_t&) { return fail("binary data"); }
  bool number_integer(Json::number_integer_t value) { return integer(value, Json(value)); }
  bool number_unsigned(Json::number_unsigned_t value) {
    const bool fits = value <= static_cast<uint64_t>(INT64_MAX);
    return integer(fits ? static_cast<int64_t>(value) : INT64_MAX, Json(value));
  }

  bool string(std::string& value) {
    if (place_ != Place::kMerges) return scalar(Json(value));
    if (in_pair_) {
      pair_.push_back(std::move(value));
      return true;
    }
    const size_t space = value.find(' ');
    if (space == value.npos || value.find(' ', space + 1) != value.npos) {
      return fail(formatted("merge \"{}\", expected two tokens and one space", value));
    }
    file_->merges.emplace_back(value.substr(0, space), value.substr(space + 1));
    return true;
  }

  bool start_object(size_t) {
    if (place_ != Place::kTree) return fail("an object inside model.vocab or model.merges");
    if (is_model_key("vocab")) {
      place_ = Place::kVocab;
      return true;
    }
    return open(Json::object());
  }

  bool start_array(size_t) {
    if (place_ == Place::kVocab) return fail("an array inside model.vocab");
    if (place_ == Place::kMerges) {
      if (in_pair_) return fail("arrays of arrays inside model.merges");
      in_pair_ = true;
      pair_.clear();
      return true;
    }
    if (is_model_key("merges")) {
      place_ = Place::kMerges;
      return true;
    }
    return open(Json::array());
  }

  bool key(std::string& name) {
    if (place_ == Place::kVocab) {
      file_->vocab.emplace_back(std::move(name), 0);
      return true;
    }
    Frame& frame = stack_.back();
    if (frame.value.contains(name)) return fail(formatted("key \"{}\" appears twice", name));
    if (frame.value.size() >= kKeysMax)
      return fail(formatted("an object of over {} keys", kKeysMax));
    frame.key = std::move(name);
    frame.value[frame.key] = nullptr;
    return true;
  }

  bool end_object() {
    if (place_ != Place::kVocab) return close();
    place_ = Place::kTree;
    return true;
  }

  bool end_array() {
    if (place_ != Place::kMerges) return close();
    if (!in_pair_) {
      place_ = Place::kTree;
      return true;
    }
    in_pair_ = false;
    if (pair_.size() != 2) return fail(formatted("a merge of {} tokens, expected 2", pair_.size()));
    file_->merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    return fail(json_problem(position, error.what()));
  }

 private:
  enum class Place { kTree, kVocab, kMerges };
  struct Frame {
    Json value;
    std::string key;  // of the entry being read, in an object
  };
  static constexpr size_t kDepthMax = 128;
  static constexpr size_t kKeysMax = 10'000;

  bool fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  bool is_model_key(std::string_view name) const {
    return stack_.size() == 2 && stack_[0].key == "model" && stack_[1].value.is_object() &&
           stack_[1].key == name;
  }

  bool open(Json value) {
    if (stack_.size() >= kDepthMax) return fail("nested deeper than 128");
    stack_.push_back({std::move(value), {}});
    return true;
  }

  bool close() {
    Json value = std::move(stack_.back().value);
    stack_.pop_back();
    return attach(std::move(value));
  }

  bool attach(Json value) {
    if (stack_.empty()) {
      file_->rest = std::move(value);
    } else if (stack_.back().value.is_array()) {
      stack_.back().value.push_back(std::move(value));
    } else {
      stack_.back().value[stack_.back().key] = std::move(value);
    }
    return true;
  }

  bool scalar(Json value) {
    if (place_ == Place::kTree) return attach(std::move(value));
    return fail(formatted("{} inside model.{}", json_excerpt(value),
                          place_ == Place::kVocab ? "vocab, expected a token id" : "merges"));
  }

  bool integer(int64_t number, Json value) {
    if (place_ != Place::kVocab) return scalar(std::move(value));
    file_->vocab.back().second = number;
    return true;
  }

  TokenizerFile* file_;
  Place place_ = Place::kTree;
  std::vector<Frame> stack_;
  bool in_pair_ = false;
  std::vector<std::string> pair_;
  std::string problem_;
};

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view text, std::string_view what) {
  TokenizerFile file;
  Reader reader(&file);
  if (!Json::sax_parse(text, &reader)) {
    return make_error(ErrorCode::kCorruption, "{}: {}", what, reader.problem());
  }
  if (!file.rest.is_object()) {
    return make_error(ErrorCode::kCorruption, "{}: {}, expected an object", what,
                      json_excerpt(file.rest));
  }
  return file;
}

}  // namespace moeflux
