// Every kernel.
#pragma once

#include "backend/gpu/kernels/attention/all.h"
#include "backend/gpu/kernels/delta/all.h"
#include "backend/gpu/kernels/experts/all.h"
#include "backend/gpu/kernels/matmul/all.h"
#include "backend/gpu/kernels/norm/all.h"
#include "backend/gpu/kernels/route/all.h"
#include "backend/gpu/kernels/rows/all.h"
