#include "chat/session_snapshot.h"

#include <cstring>

#include "base/format.h"

namespace moeflux {
namespace {

constexpr uint32_t kVersion = 1;

class Writer {
 public:
  template <typename T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// Zero past the end, which at_end() then tells.
  template <typename T>
  T get() {
    T value{};
    if (bytes_.size() < sizeof(T)) {
      failed_ = true;
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  /// A number of things of `bytes_each`; zero when there are not so many bytes.
  size_t get_count(size_t bytes_each) {
    const auto count = get<uint64_t>();
    if (count <= bytes_.size() / bytes_each) return static_cast<size_t>(count);
    failed_ = true;
    return 0;
  }
  bool at_end() const { return !failed_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

}  // namespace

std::vector<std::byte> pack_extra(const SessionExtra& extra) {
  const SamplerOptions& options = extra.sampler.options;
  Writer writer;
  writer.put(kVersion);
  for (const float value :
       {options.temperature, options.top_p, options.min_p, options.repeat_penalty,
        options.presence_penalty, options.frequency_penalty}) {
    writer.put(value);
  }
  writer.put(options.top_k);
  writer.put(options.repeat_last_n);
  writer.put(options.seed);
  writer.put(extra.sampler.draws_count);
  writer.put(uint64_t{options.logit_bias.size()});
  for (const LogitBias& bias : options.logit_bias) {
    writer.put(bias.token);
    writer.put(bias.bias);
  }
  writer.put(uint64_t{extra.logits.size()});
  for (const float logit : extra.logits) writer.put(logit);
  return writer.take();
}

Result<SessionExtra> unpack_extra(std::span<const std::byte> bytes, int64_t vocab_size) {
  Reader reader(bytes);
  const auto version = reader.get<uint32_t>();
  if (bytes.size() >= sizeof(version) && version != kVersion) {
    return make_error(ErrorCode::kUnsupported, "sampler state of version {}, expected {}", version,
                      kVersion);
  }
  SessionExtra extra;
  SamplerOptions& options = extra.sampler.options;
  for (float* value :
       {&options.temperature, &options.top_p, &options.min_p, &options.repeat_penalty,
        &options.presence_penalty, &options.frequency_penalty}) {
    *value = reader.get<float>();
  }
  options.top_k = reader.get<int32_t>();
  options.repeat_last_n = reader.get<int32_t>();
  options.seed = reader.get<uint64_t>();
  extra.sampler.draws_count = reader.get<uint64_t>();
  options.logit_bias.resize(reader.get_count(sizeof(TokenId) + sizeof(float)));
  for (LogitBias& bias : options.logit_bias) {
    bias.token = reader.get<TokenId>();
    bias.bias = reader.get<float>();
  }
  extra.logits.resize(reader.get_count(sizeof(float)));
  for (float& logit : extra.logits) logit = reader.get<float>();
  if (!reader.at_end()) {
    return make_error(ErrorCode::kCorruption, "sampler state of {} bytes is not a whole one",
                      bytes.size());
  }
  if (!extra.logits.empty() && extra.logits.size() != static_cast<size_t>(vocab_size)) {
    return make_error(ErrorCode::kCorruption, "sampler state has {} logits, expected {}",
                      extra.logits.size(), vocab_size);
  }
  MF_RETURN_IF_ERROR(validate(options));
  return extra;
}

}  // namespace moeflux
