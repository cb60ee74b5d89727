// Bytes to their tokens, then the merges.
#include "text/bpe.h"

#include "base/format.h"

namespace moeflux {
namespace {

// A table of 128 MiB, and 25 pairs for each of 160,000 tokens: a token has fewer pairs than bytes.
constexpr size_t kPairsMax = size_t{1} << 22;

bool occurs_in_utf8(int byte) { return byte < 0xF5 && byte != 0xC0 && byte != 0xC1; }

}  // namespace

Result<Bpe> Bpe::create(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges) {
  Bpe bpe;
  MF_RETURN_IF_ERROR(bpe.read_bytes(vocabulary));
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
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto id = vocabulary.find(std::string_view(&c, 1));
    if (!id && occurs_in_utf8(byte)) {
      return make_error(ErrorCode::kUnsupported, "vocabulary has no token for byte 0x{:02x}", byte);
    }
    byte_ids_[static_cast<size_t>(byte)] = id.value_or(-1);
  }
  return {};
}

void Bpe::append(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const {
  scratch->bytes.clear();
  for (const char c : piece) scratch->bytes.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  merges_.append(scratch->bytes, &scratch->merging, out);
}

}  // namespace moeflux
