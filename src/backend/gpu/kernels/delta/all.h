// Every kernel of the causal convolution and the delta rule.
#pragma once

#include "backend/gpu/kernels/delta/causal_conv.h"
#include "backend/gpu/kernels/delta/gated_delta.h"
#include "backend/gpu/kernels/delta/gated_delta_t1.h"
#include "backend/gpu/kernels/delta/token_conv.h"
