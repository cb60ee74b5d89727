// Reads the fields of a request's JSON object by name and type, and remembers the first that cannot
// be right. A field that is null counts as absent, as in OpenAI's interface; names that nobody asks
// for are ignored, and known.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "serve/request/field_list.h"
#include "serve/wire/api_error.h"

namespace moeflux::serve {

/// The most that a count of tokens may say: no text is as long, and sums of a few do not overflow.
constexpr int64_t kTokenCountMax = int64_t{1} << 40;

/// Both ends belong to it.
template <typename T>
struct Range {
  T low;
  T high;
};

class Fields {
 public:
  /// `object` must outlive this; anything but an object has no fields, and is a problem. `path` is
  /// where it lies in the request ("stream_options"), empty for the request itself.
  explicit Fields(const Json& object, std::string path = {});
  /// Fields that `list` does not say to be served are absent here, and fields that it says to be
  /// refused are a problem. The list must outlive this.
  Fields(const Json& object, const FieldList& list, std::string path = {});

  /// Null where it is absent.
  const Json* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, Range<int64_t> range);
  std::optional<double> number(std::string_view name, Range<double> range);
  std::optional<std::string> text(std::string_view name);
  const Json* array(std::string_view name);
  const Json* object(std::string_view name);
  /// A string, or an array of strings.
  std::optional<std::vector<std::string>> texts(std::string_view name, size_t count_max);

  /// "stream_options.include_usage"
  std::string full_name(std::string_view name) const;
  void fail(ApiError error);
  const std::optional<ApiError>& problem() const { return problem_; }

  /// Names of the object that nobody has asked for and that are not harmless, in order: of a name's
  /// first letters, and of so many.
  std::vector<std::string> ignored() const;

 private:
  void fail(std::string_view name, const Json& found, std::string_view expected);

  const Json& object_;
  std::string path_;
  const FieldList* list_ = nullptr;
  mutable std::set<std::string, std::less<>> asked_;  // of those that are there
  std::optional<ApiError> problem_;
};

}  // namespace moeflux::serve
