// Storage formats that kernels read number by number, by the names of their FormatTraits. The place
// in the list is the number that MatrixLayout::format has, from kFormatCoded on.
#pragma once

#define MF_CODED_FORMATS(X) X(mxfp4)
