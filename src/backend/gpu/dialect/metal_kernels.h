// The whole Metal text: the dialect, then every kernel.
#pragma once

#include "backend/gpu/dialect/metal.h"
#include "backend/gpu/kernels/all.h"
