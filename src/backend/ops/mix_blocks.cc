#include "backend/ops/mix_blocks.h"

#include "base/format.h"

namespace moeflux::ops {

Status MixBlocks::check() const {
  Conditions c(kName);
  c.is_float("blocks", blocks).equal("extents of blocks", blocks.shape.rank(), 3);
  if (blocks.shape.rank() != 3) return c.status();
  return c.is_packed("blocks", blocks, blocks.shape)
      .is_packed("last", last, {blocks.dim(1), blocks.dim(2)})
      .is_packed("out", out, {blocks.dim(1), blocks.dim(2)})
      .has("query", query, blocks.dim(2))
      .holds("out", !have_overlap(out, blocks) && !have_overlap(out, last), "apart from states")
      .status();
}

std::string MixBlocks::text() const {
  return formatted("mix_blocks {} of {} and one more{}", out.shape.to_string(),
                   blocks.shape.to_string(), options.sums_normed ? ", normed" : "");
}

}  // namespace moeflux::ops
