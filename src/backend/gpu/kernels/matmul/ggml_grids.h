// The grids that the codes of IQ1, IQ2 and IQ3 choose from. quant/formats/iq_grid_data.h says how
// an entry lies.
#pragma once

#include "backend/gpu/kernels/params.h"
#include "quant/formats/iq_grid_data.h"

namespace moeflux {
namespace gpu {
namespace kernels {

MF_TABLE(u16, kIq1Grid) = {MF_IQ1_GRID};
MF_TABLE(u16, kIq2XxsGrid) = {MF_IQ2_XXS_GRID};
MF_TABLE(u16, kIq2XsGrid) = {MF_IQ2_XS_GRID};
MF_TABLE(u16, kIq2SGrid) = {MF_IQ2_S_GRID};
MF_TABLE(u16, kIq3XxsGrid) = {MF_IQ3_XXS_GRID};
MF_TABLE(u16, kIq3SGrid) = {MF_IQ3_S_GRID};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
