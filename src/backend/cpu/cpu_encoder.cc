// Transfers, and what all ops of the CPU share.
#include "backend/cpu/cpu_encoder.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernel_args.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux::cpu {
float* aligned_workspace(std::vector<float>& storage, int64_t size) {
  constexpr uintptr_t kLine = 64;
  float* begin = workspace(storage, size + static_cast<int64_t>(kLine / sizeof(float)));
  const auto past = reinterpret_cast<uintptr_t>(begin) % kLine;
  return past == 0 ? begin : begin + (kLine - past) / sizeof(float);
}

void CpuEncoder::write(Tensor to, std::span<const std::byte> from) {
  flush();
  MF_CHECK(to.is_contiguous() && to.size_bytes() == from.size());
  if (!from.empty()) std::memcpy(host_ptr<std::byte>(to), from.data(), from.size());
}

Status CpuEncoder::read(std::span<std::byte> to, Tensor from) {
  flush();
  MF_CHECK(from.is_contiguous() && from.size_bytes() == to.size());
  MF_RETURN_IF_ERROR(status_);
  if (!to.empty()) std::memcpy(to.data(), host_ptr<std::byte>(from), to.size());
  return {};
}

bool CpuEncoder::supports(const char* op, const Weight& weight) {
  if (!status_.ok()) return false;
  const bool is_known = has_kernels(weight) || find_decoder(weight.format) != nullptr;
  if (is_known && is_valid(weight.format, weight.cols)) return true;
  status_ = make_error(ErrorCode::kUnsupported, "{}: a [{}, {}] weight in format {} of {}", op,
                       weight.rows, weight.cols, weight.format.to_string(),
                       dtype_name(weight.format.dtype));
  return false;
}

const BlockKernel* CpuEncoder::block_kernel(const Weight& weight) const {
  if (!rounds(weight)) return nullptr;
  if (rounded_->blocks == nullptr || weight.rows % kTilePanelRows != 0) return nullptr;
  const std::optional<BlockKind> kind = block_kind(weight.format);
  return kind ? &rounded_->blocks->of[static_cast<size_t>(*kind)] : nullptr;
}

const uint8_t* CpuEncoder::panel_at(const Weight& weight, int64_t row) const {
  if (!uses_tiles(weight)) return nullptr;
  const int64_t panels = weight.rows / kTilePanelRows;
  const auto panel_bytes = static_cast<int64_t>(weight.parts.codes.size_bytes()) / panels;
  return bytes_of(weight.parts.codes) + row / kTilePanelRows * panel_bytes;
}

void CpuEncoder::row_major_product(const RowMajorProduct& p, std::byte* space) {
  if (has_kernels(p.weight)) {
    return kernels_.matmul({.w = matrix_args(p.weight),
                            .bias = {},
                            .x = p.x,
                            .out = p.out,
                            .tokens = p.tokens,
                            .row_begin = p.row_begin,
                            .row_end = p.row_end,
                            .out_row = p.out_row});
  }
  const RowDecoder& decoder = *find_decoder(p.weight.format);
  for (int64_t row = p.row_begin; row < p.row_end; row += kDecodedRows) {
    const int64_t rows = std::min(kDecodedRows, p.row_end - row);
    decoder.decode(p.weight, row, rows, reinterpret_cast<float*>(space));
    kernels_.matmul({.w = decoded_args(space, rows, p.weight.cols),
                     .bias = {},
                     .x = p.x,
                     .out = p.out,
                     .tokens = p.tokens,
                     .row_begin = 0,
                     .row_end = rows,
                     .out_row = p.out_row - row});
  }
}

std::byte* CpuEncoder::decode_spaces(size_t bytes) {
  return worker_space_.get(bytes * static_cast<size_t>(pool_.threads()));
}

int64_t CpuEncoder::rows_per_task(int64_t rows, int64_t matrices) const {
  // Small enough that threads finish together, large enough to amortise a claim; a multiple of the
  // kernels' panel of 8 rows.
  constexpr int64_t kTasksPerThread = 8;
  constexpr int64_t kRowsMax = 64;
  const int64_t fair = rows * matrices / (pool_.threads() * kTasksPerThread);
  constexpr int64_t kPanel = 8;
  return std::clamp<int64_t>(fair / kPanel * kPanel, kPanel, kRowsMax);
}

void CpuEncoder::permute_rows(std::span<const float* const> x, int64_t cols,
                              std::vector<float>& permuted, std::vector<const float*>& pointers) {
  const auto n = static_cast<int64_t>(x.size());
  float* rows = aligned_workspace(permuted, n * cols);
  const float** to = workspace(pointers, n);
  for_tasks(n, n * cols, [&](int64_t i) {
    kernels_.permute(x[static_cast<size_t>(i)], cols, rows + i * cols);
    to[i] = rows + i * cols;
  });
}

}  // namespace moeflux::cpu
