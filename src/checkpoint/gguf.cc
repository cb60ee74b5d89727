#include "checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/format.h"
#include "checkpoint/gguf_header.h"

namespace moeflux::gguf {
namespace {

constexpr int32_t kPartsMax = 10000;
constexpr size_t kPartDigits = 5;

/// "-00001-of-00003.gguf".
std::string split_suffix(int32_t part, int32_t count) {
  return formatted("-{:05}-of-{:05}.gguf", part + 1, count);
}

/// Five decimal digits at the begin of `text`.
bool parse_digits(std::string_view text, int32_t& number) {
  if (text.size() < kPartDigits) return false;
  number = 0;
  for (const char digit : text.substr(0, kPartDigits)) {
    if (digit < '0' || digit > '9') return false;
    number = number * 10 + (digit - '0');
  }
  return true;
}

/// A whole number of a part's keys; `absent` when there is none.
Result<int64_t> split_key(const Keys::Values& keys, std::string_view key, int64_t absent) {
  const auto found = keys.find(key);
  if (found == keys.end()) return absent;
  if (const auto* number = std::get_if<int64_t>(&found->second.data)) return *number;
  return make_error(ErrorCode::kCorruption, "{} is of type {}, expected a whole number", key,
                    value_type_name(found->second.type));
}

Status check_numbers(const Keys::Values& keys, size_t part, size_t parts) {
  MF_ASSIGN_OR_RETURN(const int64_t number, split_key(keys, "split.no", -1));
  MF_ASSIGN_OR_RETURN(const int64_t count, split_key(keys, "split.count", -1));
  if (number == static_cast<int64_t>(part) && count == static_cast<int64_t>(parts)) return {};
  if (number == -1 || count == -1) {
    return make_error(ErrorCode::kCorruption,
                      "has no {}, expected part {} of {} of a split model by the file's name",
                      number == -1 ? "split.no" : "split.count", part + 1, parts);
  }
  return make_error(ErrorCode::kCorruption,
                    "split.no is {} and split.count is {}, expected {} and {} by the file's name",
                    number, count, part, parts);
}

/// A file that says that it is a part, and whose name does not say of what.
Status check_is_whole(const Header& header) {
  const Keys::Values& keys = header.keys;
  if (header.tensors.empty()) return {};  // keys alone
  MF_ASSIGN_OR_RETURN(const int64_t number, split_key(keys, "split.no", 0));
  MF_ASSIGN_OR_RETURN(const int64_t count, split_key(keys, "split.count", 1));
  if (count <= 1) return {};
  return make_error(ErrorCode::kCorruption,
                    "is part {} of {} by its keys, expected a name that ends in {}", number + 1,
                    count, "-0000N-of-0000M.gguf, as the other parts cannot be found without it");
}

/// No name twice, and as many tensors as each part says.
Status check_sums(const std::vector<std::unique_ptr<File>>& files,
                  const std::vector<Header>& headers) {
  int64_t tensors = 0;
  std::set<std::string_view> names;
  for (size_t i = 0; i < headers.size(); ++i) {
    tensors += static_cast<int64_t>(headers[i].tensors.size());
    for (const TensorInfo& tensor : headers[i].tensors) {
      if (names.insert(tensor.name).second) continue;
      return make_error(ErrorCode::kCorruption, "{}: tensor {} appears twice", files[i]->path(),
                        in_quotes(tensor.name));
    }
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    if (tensors == 0) break;  // keys alone
    const Result<int64_t> stated = split_key(headers[i].keys, "split.tensors.count", tensors);
    if (!stated.ok()) return stated.error().with_context(files[i]->path());
    if (*stated == tensors) continue;
    return make_error(ErrorCode::kCorruption,
                      "{}: split.tensors.count is {}, the parts together have {}", files[i]->path(),
                      *stated, tensors);
  }
  return {};
}

/// Moves the parts' tensors together.
std::vector<TensorInfo> take_tensors(std::vector<Header>& headers) {
  std::vector<TensorInfo> all;
  for (size_t i = 0; i < headers.size(); ++i) {
    for (TensorInfo& tensor : headers[i].tensors) {
      tensor.file = static_cast<int32_t>(i);
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

}  // namespace

std::string_view value_type_name(ValueType type) {
  constexpr std::array<std::string_view, 13> kNames = {"U8",  "I8",  "U16",  "I16",    "U32",
                                                       "I32", "F32", "bool", "string", "array",
                                                       "U64", "I64", "F64"};
  return kNames[static_cast<size_t>(type)];
}

const Value* Keys::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Error Keys::wrong_type(std::string_view key, const Value& found, std::string_view expected) const {
  const auto* stored = std::get_if<Stored>(&found.data);
  const bool is_array = stored != nullptr && found.type == ValueType::kArray;
  return make_error(ErrorCode::kCorruption, "{}: key {} is {}{}, expected {}", file_->path(), key,
                    is_array ? "an array of " : "of type ",
                    value_type_name(is_array ? stored->element : found.type), expected);
}

Result<const Value*> Keys::require(std::string_view key) const {
  if (const Value* found = find(key)) return found;
  return make_error(ErrorCode::kNotFound, "{} has no key {}",
                    file_ == nullptr ? "the model" : file_->path(), key);
}

Result<const Stored*> Keys::require_array(std::string_view key) const {
  MF_ASSIGN_OR_RETURN(const Value* found, require(key));
  if (found->type != ValueType::kArray) return wrong_type(key, *found, "an array");
  return std::get_if<Stored>(&found->data);
}

Result<std::string> Keys::text(std::string_view key) const {
  MF_ASSIGN_OR_RETURN(const Value* found, require(key));
  if (found->type != ValueType::kString) return wrong_type(key, *found, "a string");
  if (const auto* text = std::get_if<std::string>(&found->data)) return *text;
  const auto& stored = std::get<Stored>(found->data);
  std::string text(stored.size_bytes, '\0');  // checked against the file and kTextBytesMax
  MF_RETURN_IF_ERROR(file_->read_at(stored.offset_bytes, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::vector<int64_t>> Keys::ints(std::string_view key) const {
  MF_ASSIGN_OR_RETURN(const Stored* stored, require_array(key));
  const uint64_t each = element_bytes(stored->element);
  HeaderReader reader(*file_, stored->offset_bytes, stored->offset_bytes + stored->size_bytes);
  std::vector<int64_t> numbers;
  std::array<std::byte, 8> bytes{};
  for (uint64_t i = 0; i < stored->count; ++i) {
    const std::span<std::byte> used = std::span(bytes).first(each);
    MF_RETURN_IF_ERROR(reader.read(used, "an element"));
    if (each == 0) return wrong_type(key, *find(key), "an array of whole numbers");
    const Value value = decode_value(stored->element, used);
    if (const auto* number = std::get_if<int64_t>(&value.data)) {
      numbers.push_back(*number);
    } else if (const auto* flag = std::get_if<bool>(&value.data)) {
      numbers.push_back(*flag ? 1 : 0);
    } else {
      return wrong_type(key, *find(key), "an array of whole numbers below 2^63");
    }
  }
  return numbers;
}

Result<std::vector<double>> Keys::numbers(std::string_view key) const {
  MF_ASSIGN_OR_RETURN(const Stored* stored, require_array(key));
  if (stored->element != ValueType::kF32 && stored->element != ValueType::kF64) {
    return wrong_type(key, *find(key), "an array of floats");
  }
  HeaderReader reader(*file_, stored->offset_bytes, stored->offset_bytes + stored->size_bytes);
  std::vector<double> numbers;
  std::array<std::byte, 8> bytes{};
  const std::span<std::byte> used = std::span(bytes).first(element_bytes(stored->element));
  for (uint64_t i = 0; i < stored->count; ++i) {
    MF_RETURN_IF_ERROR(reader.read(used, "an element"));
    numbers.push_back(std::get<double>(decode_value(stored->element, used).data));
  }
  return numbers;
}

Status Keys::for_each_text(std::string_view key,
                           const std::function<Status(std::string_view)>& take) const {
  MF_ASSIGN_OR_RETURN(const Stored* stored, require_array(key));
  if (stored->element != ValueType::kString) {
    return wrong_type(key, *find(key), "an array of strings");
  }
  HeaderReader reader(*file_, stored->offset_bytes, stored->offset_bytes + stored->size_bytes);
  for (uint64_t i = 0; i < stored->count; ++i) {
    MF_ASSIGN_OR_RETURN(const std::string text, reader.text("a string", kTextBytesMax));
    MF_RETURN_IF_ERROR(take(text));
  }
  return {};
}

namespace {

/// Checks the keys that hold for a whole model; of several parts, the first has them.
Result<std::string> read_architecture(const Keys& keys) {
  if (keys.find("general.type") != nullptr) {
    MF_ASSIGN_OR_RETURN(const std::string type, keys.text("general.type"));
    if (type != "model") {
      return make_error(ErrorCode::kUnsupported, "general.type is {}, expected \"model\"",
                        in_quotes(type));
    }
  }
  if (keys.find("general.architecture") == nullptr) {
    return make_error(ErrorCode::kCorruption, "has no key general.architecture");
  }
  return keys.text("general.architecture");
}

}  // namespace

Result<Container> Container::open(const std::string& path) {
  std::vector<std::unique_ptr<File>> files;
  SplitName name;
  if (!parse_split_name(path, name)) {
    MF_ASSIGN_OR_RETURN(auto file, open_file(path));
    files.push_back(std::move(file));
    return read(std::move(files));
  }
  for (int32_t part = 0; part < name.count; ++part) {
    Result<std::unique_ptr<File>> file = open_file(name.path_of(part));
    if (!file.ok()) {
      return file.error().with_context(formatted("part {} of {}", part + 1, name.count));
    }
    files.push_back(std::move(file).value());
  }
  return read(std::move(files));
}

Result<Container> Container::read(std::vector<std::unique_ptr<File>> files) {
  std::vector<Header> headers;
  for (const std::unique_ptr<File>& file : files) {
    MF_ASSIGN_OR_RETURN(Header header, read_header(*file));
    const Status fits = files.size() == 1
                            ? check_is_whole(header)
                            : check_numbers(header.keys, headers.size(), files.size());
    if (!fits.ok()) return fits.error().with_context(file->path());
    headers.push_back(std::move(header));
  }
  MF_RETURN_IF_ERROR(check_sums(files, headers));
  Container container;
  container.keys_ = Keys(*files[0], std::move(headers[0].keys));
  Result<std::string> architecture = read_architecture(container.keys_);
  if (!architecture.ok()) return architecture.error().with_context(files[0]->path());
  container.architecture_ = std::move(architecture).value();
  container.tensors_ = take_tensors(headers);
  container.files_ = std::move(files);
  return container;
}

Result<std::string> copy_keys(const File& file) {
  constexpr size_t kTensorCountBegin = 8;
  MF_ASSIGN_OR_RETURN(const Header header, read_header(file));
  std::string bytes(header.keys_end, '\0');  // read_header() has read as much
  MF_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(bytes))));
  std::fill_n(bytes.begin() + kTensorCountBegin, sizeof(uint64_t), '\0');
  return bytes;
}

bool begins_with_magic(const std::string& path) {
  const auto file = open_file(path);
  std::array<char, 4> magic{};
  return file.ok() && (*file)->size_bytes() >= magic.size() &&
         (*file)->read_at(0, std::as_writable_bytes(std::span(magic))).ok() &&
         std::string_view(magic.data(), magic.size()) == "GGUF";
}

std::string SplitName::path_of(int32_t part) const { return stem + split_suffix(part, count); }

bool parse_split_name(std::string_view path, SplitName& name) {
  const size_t suffix_bytes = split_suffix(0, 1).size();
  if (path.size() <= suffix_bytes) return false;
  const std::string_view suffix = path.substr(path.size() - suffix_bytes);
  int32_t number = 0;
  int32_t count = 0;
  if (!parse_digits(suffix.substr(1), number) || !parse_digits(suffix.substr(10), count)) {
    return false;
  }
  if (number < 1 || number > count || count > kPartsMax) return false;
  name = {std::string(path.substr(0, path.size() - suffix_bytes)), number - 1, count};
  return suffix == split_suffix(name.number, count);
}

}  // namespace moeflux::gguf
