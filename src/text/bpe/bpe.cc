// Bytes to their tokens, then the merges.
#include "text/bpe/bpe.h"

#include "base/format.h"

namespace moeflux {
namespace {

// A table of 128 MiB, and 25 pairs for each of 160,000 tokens: a token has fewer pairs than bytes.
constexpr size_t kPairsMax = size_t{1} << 22;

}  // namespace

Result<Bpe> Bpe::create(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges,
                        MissingBytes missing) {
  Bpe bpe;
  MF_RETURN_IF_ERROR(bpe.read_bytes(vocabulary));
  bpe.missing_ = std::move(missing);
  bpe.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    bpe.merges_.put(merges[rank], static_cast<uint32_t>(rank));
  }
  return bpe;
}

Result<Bpe> Bpe::create_from_ranks(const Vocabulary& vocabulary) {
  Bpe bpe;
  MF_RETURN_IF_ERROR(bpe.read_bytes(vocabulary));
  std::vector<BpeMerge> merges;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view bytes = vocabulary.bytes(id);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = vocabulary.find(bytes.substr(0, cut));
      const auto right = left ? vocabulary.find(bytes.substr(cut)) : std::nullopt;
      if (right) merges.push_back({*left, *right, id});
    }
    if (merges.size() > kPairsMax) {
      return make_error(ErrorCode::kResourceExhausted, "more than {} pairs of tokens make a token",
                        kPairsMax);
    }
  }
  bpe.merges_.reserve(merges.size());
  for (const BpeMerge& merge : merges) bpe.merges_.put(merge, static_cast<uint32_t>(merge.merged));
  return bpe;
}

Status Bpe::read_bytes(const Vocabulary& vocabulary) {
  bool has_some = false;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = vocabulary.find(std::string_view(&c, 1)).value_or(-1);
    has_some = has_some || byte_ids_[byte] >= 0;
  }
  if (has_some) return {};
  return make_error(ErrorCode::kUnsupported,
                    "no token is a single byte, expected a vocabulary in the byte alphabet");
}

void Bpe::append_missing(uint8_t byte, std::vector<TokenId>* out) const {
  const std::vector<TokenId>& spelled = missing_.spelled[byte];
  if (!spelled.empty()) {
    out->insert(out->end(), spelled.begin(), spelled.end());
    return;
  }
  if (missing_.unknown < 0) return;
  const bool is_fused = missing_.fuses_unknown && !out->empty() && out->back() == missing_.unknown;
  if (!is_fused) out->push_back(missing_.unknown);
}

void Bpe::append(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const {
  scratch->bytes.clear();
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte_ids_[byte] >= 0) {
      scratch->bytes.push_back(byte_ids_[byte]);
    } else {
      append_missing(byte, &scratch->bytes);
    }
  }
  merges_.append(scratch->bytes, &scratch->merging, out);
}

}  // namespace moeflux
