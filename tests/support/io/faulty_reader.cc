#include "tests/support/io/faulty_reader.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux {

FaultyReader::FaultyReader(FaultyReaderOptions options, std::unique_ptr<AsyncReader> inner)
    : options_(std::move(options)), random_(options_.seed), inner_(std::move(inner)) {}

bool FaultyReader::decide_failure(uint64_t number) {
  // Drawn for every read, so that naming a failing read does not change the fate of the others.
  const double drawn = static_cast<double>(random_() >> 11) * 0x1p-53;
  if (drawn < options_.failure_probability) return true;
  const auto& listed = options_.failing_reads;
  return std::find(listed.begin(), listed.end(), number) != listed.end();
}

void FaultyReader::submit(std::span<const ReadRequest> requests) {
  std::vector<ReadRequest> passed_on;
  for (const ReadRequest& request : requests) {
    MF_CHECK(request.file != nullptr);
    std::fill(request.into.begin(), request.into.end(), std::byte{0xA5});
    Pending read;
    read.request = request;
    read.number = reads_submitted_++;
    read.fails = decide_failure(read.number);
    read.delay_waits = static_cast<int>(draw(static_cast<uint64_t>(options_.delay_waits_max) + 1));
    if (inner_ != nullptr && !read.fails) {
      ReadRequest inner_request = request;
      inner_request.tag = read.number;  // callers' tags need not be unique
      passed_on.push_back(inner_request);
    }
    pending_.push_back(std::move(read));
  }
  if (!passed_on.empty()) inner_->submit(passed_on);
}

// All of them, not just some: which reads an inner reader finishes first is not ours to know.
void FaultyReader::drain_inner() {
  while (inner_ != nullptr && inner_->in_flight() > 0) {
    for (ReadCompletion& completion : inner_->wait()) {
      const auto read = std::find_if(pending_.begin(), pending_.end(),
                                     [&](const Pending& p) { return p.number == completion.tag; });
      MF_CHECK(read != pending_.end());
      read->inner_status = std::move(completion.status);
    }
  }
}

std::vector<ReadCompletion> FaultyReader::wait() {
  MF_CHECK(!pending_.empty());
  drain_inner();
  const auto least = std::min_element(
      pending_.begin(), pending_.end(),
      [](const Pending& a, const Pending& b) { return a.delay_waits < b.delay_waits; });
  return deliver(std::max(least->delay_waits, 0));  // skip waits that would return nothing
}

std::vector<ReadCompletion> FaultyReader::poll() {
  drain_inner();
  return deliver(0);
}

size_t FaultyReader::promote(uint64_t tag) {
  size_t promoted = 0;
  for (Pending& read : pending_) {
    ReadRequest& request = read.request;
    if (request.tag != tag || request.priority == ReadPriority::kDemand || read.cancelled) continue;
    request.priority = ReadPriority::kDemand;
    read.delay_waits = 0;
    ++promoted;
  }
  return promoted;
}

size_t FaultyReader::cancel(uint64_t tag) {
  size_t cancelled = 0;
  for (Pending& read : pending_) {
    if (read.request.tag != tag || read.cancelled || draw(2) == 0) continue;
    read.cancelled = true;
    ++cancelled;
  }
  return cancelled;
}

std::vector<ReadCompletion> FaultyReader::deliver(int passed) {
  std::vector<Pending> ready;
  std::deque<Pending> later;
  for (Pending& read : pending_) {
    read.delay_waits -= passed;
    if (read.delay_waits <= 0) {
      ready.push_back(std::move(read));
    } else {
      --read.delay_waits;
      later.push_back(std::move(read));
    }
  }
  for (size_t i = ready.size(); options_.reorder && i > 1; --i) {
    std::swap(ready[i - 1], ready[draw(i)]);
  }
  size_t count = ready.size();
  if (options_.completions_per_wait_max != 0) {
    count = std::min(count, options_.completions_per_wait_max);
  }
  std::vector<ReadCompletion> completions;
  for (size_t i = 0; i < count; ++i) completions.push_back(complete(ready[i]));
  for (size_t i = count; i < ready.size(); ++i) later.push_back(std::move(ready[i]));
  std::sort(later.begin(), later.end(),
            [](const Pending& a, const Pending& b) { return a.number < b.number; });
  pending_ = std::move(later);
  return completions;
}

ReadCompletion FaultyReader::complete(const Pending& read) {
  const ReadRequest& request = read.request;
  if (read.cancelled) {
    return {request.tag, make_error(ErrorCode::kCancelled, "{}: the read of {} bytes at offset {}",
                                    request.file->path(), request.into.size(), request.offset)};
  }
  if (read.fails) {
    ++reads_failed_;
    return {request.tag,
            make_error(ErrorCode::kIo,
                       "{}: reading {} bytes at offset {} failed: injected into read "
                       "{}",
                       request.file->path(), request.into.size(), request.offset, read.number)};
  }
  return {request.tag, inner_ != nullptr ? read.inner_status : read_in_pieces(request)};
}

Status FaultyReader::read_in_pieces(const ReadRequest& request) {
  if (options_.piece_bytes_max == 0) return request.file->read_at(request.offset, request.into);
  struct Piece {
    size_t begin;
    size_t size;
  };
  std::vector<Piece> pieces;
  for (size_t begin = 0; begin < request.into.size();) {
    const size_t rest = request.into.size() - begin;
    const size_t size = std::min<size_t>(rest, 1 + draw(options_.piece_bytes_max));
    pieces.push_back({begin, size});
    begin += size;
  }
  for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[draw(i)]);
  for (const Piece& piece : pieces) {
    MF_RETURN_IF_ERROR(request.file->read_at(request.offset + piece.begin,
                                             request.into.subspan(piece.begin, piece.size)));
  }
  return {};
}

}  // namespace moeflux
