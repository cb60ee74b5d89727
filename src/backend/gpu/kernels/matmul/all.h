// Every kernel of products with matrices.
#pragma once

#include "backend/gpu/kernels/matmul/head_linear.h"
#include "backend/gpu/kernels/matmul/head_tile.h"
#include "backend/gpu/kernels/matmul/linear.h"
#include "backend/gpu/kernels/matmul/linear_few_rows.h"
#include "backend/gpu/kernels/matmul/mma_linear.h"
#include "backend/gpu/kernels/matmul/mma_linear_few.h"
#include "backend/gpu/kernels/matmul/mma_linear_t1.h"
#include "backend/gpu/kernels/matmul/mma_normed_linear_t1.h"
#include "backend/gpu/kernels/matmul/mma_quantize_rows.h"
