#include "chat/session_snapshot.h"

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

constexpr uint32_t kVersion = 3;

class Writer {
 public:
  template <typename T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void put_text(const std::string& text) {
    put(uint64_t{text.size()});
    for (const char c : text) put(c);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class SnapshotReader {
 public:
  explicit SnapshotReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

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
  std::string get_text() {
    std::string text(get_count(1), '\0');
    for (char& c : text) c = get<char>();
    return text;
  }
  bool at_end() const { return !failed_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

/// The numbers that version 1 does not have.
template <typename Options>
auto later_floats(Options& o) {
  return std::array{&o.typical_p,      &o.top_n_sigma,       &o.xtc_probability, &o.xtc_threshold,
                    &o.dynatemp_range, &o.dynatemp_exponent, &o.mirostat_tau,    &o.mirostat_eta,
                    &o.dry_multiplier, &o.dry_base};
}
template <typename Options>
auto later_integers(Options& o) {
  return std::array{&o.mirostat, &o.dry_allowed_length, &o.dry_penalty_last_n};
}

void put_later(const SamplerState& sampler, Writer& writer) {
  const SamplerOptions& options = sampler.options;
  for (const float* value : later_floats(options)) writer.put(*value);
  for (const int32_t* value : later_integers(options)) writer.put(*value);
  writer.put(uint8_t{sampler.progress.mirostat_mu.has_value()});
  writer.put(sampler.progress.mirostat_mu.value_or(0.0));
  writer.put(uint64_t{options.samplers.size()});
  for (const SamplerStep step : options.samplers) writer.put(step);
  writer.put(uint64_t{options.dry_sequence_breakers.size()});
  for (const std::string& text : options.dry_sequence_breakers) writer.put_text(text);
}

Status get_later(SnapshotReader& reader, SamplerState& sampler) {
  SamplerOptions& options = sampler.options;
  for (float* value : later_floats(options)) *value = reader.get<float>();
  for (int32_t* value : later_integers(options)) *value = reader.get<int32_t>();
  const bool has_mu = reader.get<uint8_t>() != 0;
  const auto mu = reader.get<double>();
  if (has_mu) sampler.progress.mirostat_mu = mu;
  if (!std::isfinite(mu)) {
    return make_error(ErrorCode::kInvalidArgument, "mirostat's mu is {}, expected a finite number",
                      mu);
  }
  options.samplers.resize(reader.get_count(1));
  for (SamplerStep& step : options.samplers) {
    const auto number = reader.get<uint8_t>();
    if (number >= kSamplerStepCount) {
      return make_error(ErrorCode::kCorruption, "sampler {} of a snapshot, expected 0 to {}",
                        number, kSamplerStepCount - 1);
    }
    step = static_cast<SamplerStep>(number);
  }
  options.dry_sequence_breakers.resize(reader.get_count(sizeof(uint64_t)));
  for (std::string& text : options.dry_sequence_breakers) text = reader.get_text();
  return {};
}

void put_constraint(const SessionConstraint& constraint, Writer& writer) {
  writer.put(static_cast<uint8_t>(constraint.stated.kind));
  writer.put_text(constraint.stated.text);
  writer.put(static_cast<uint64_t>(constraint.begin));
}

void get_constraint(SnapshotReader& reader, SessionConstraint& constraint) {
  constraint.stated.kind = static_cast<ConstraintKind>(reader.get<uint8_t>());
  constraint.stated.text = reader.get_text();
  constraint.stated.source = "the snapshot's constraint";
  constraint.begin = static_cast<int64_t>(reader.get<uint64_t>());
}

Status check_constraint(const SessionConstraint& constraint) {
  const auto kind = static_cast<int>(constraint.stated.kind);
  const auto last = static_cast<int>(ConstraintKind::kLark);
  if (kind <= last && constraint.begin >= 0) return {};
  return make_error(ErrorCode::kCorruption,
                    "constraint of kind {} from token {} of a snapshot, expected 0 to {} from a "
                    "place in the sequence",
                    kind, constraint.begin, last);
}

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
  writer.put(extra.sampler.progress.draws_count);
  writer.put(uint64_t{options.logit_bias.size()});
  for (const LogitBias& bias : options.logit_bias) {
    writer.put(bias.token);
    writer.put(bias.bias);
  }
  writer.put(uint64_t{extra.logits.size()});
  for (const float logit : extra.logits) writer.put(logit);
  put_later(extra.sampler, writer);
  put_constraint(extra.constraint, writer);
  return writer.take();
}

Result<SessionExtra> unpack_extra(std::span<const std::byte> bytes, int64_t vocab_size) {
  SnapshotReader reader(bytes);
  const auto version = reader.get<uint32_t>();
  if (bytes.size() >= sizeof(version) && (version == 0 || version > kVersion)) {
    return make_error(ErrorCode::kUnsupported, "sampler state of version {}, expected 1 to {}",
                      version, kVersion);
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
  extra.sampler.progress.draws_count = reader.get<uint64_t>();
  options.logit_bias.resize(reader.get_count(sizeof(TokenId) + sizeof(float)));
  for (LogitBias& bias : options.logit_bias) {
    bias.token = reader.get<TokenId>();
    bias.bias = reader.get<float>();
  }
  extra.logits.resize(reader.get_count(sizeof(float)));
  for (float& logit : extra.logits) logit = reader.get<float>();
  if (version > 1) MF_RETURN_IF_ERROR(get_later(reader, extra.sampler));
  if (version > 2) get_constraint(reader, extra.constraint);
  if (!reader.at_end()) {
    return make_error(ErrorCode::kCorruption, "sampler state of {} bytes is not a whole one",
                      bytes.size());
  }
  if (!extra.logits.empty() && extra.logits.size() != static_cast<size_t>(vocab_size)) {
    return make_error(ErrorCode::kCorruption, "sampler state has {} logits, expected {}",
                      extra.logits.size(), vocab_size);
  }
  MF_RETURN_IF_ERROR(check_constraint(extra.constraint));
  MF_RETURN_IF_ERROR(validate(options));
  return extra;
}

}  // namespace moeflux
