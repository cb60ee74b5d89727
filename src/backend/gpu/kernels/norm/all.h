// Every kernel of norms and of the sums they are of.
#pragma once

#include "backend/gpu/kernels/norm/chain.h"
#include "backend/gpu/kernels/norm/layer_norm.h"
#include "backend/gpu/kernels/norm/rms_norm.h"
