// Every kernel of routed experts.
#pragma once

#include "backend/gpu/kernels/experts/expert_lists.h"
#include "backend/gpu/kernels/experts/experts.h"
#include "backend/gpu/kernels/experts/fetch_experts.h"
#include "backend/gpu/kernels/experts/mma_down_sum.h"
#include "backend/gpu/kernels/experts/mma_experts.h"
#include "backend/gpu/kernels/experts/mma_experts_few.h"
#include "backend/gpu/kernels/experts/mma_experts_t1.h"
#include "backend/gpu/kernels/experts/mma_gate_up_list.h"
