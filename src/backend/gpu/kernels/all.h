// Every kernel text, in an order in which each finds what it uses.
#pragma once

// clang-format off
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows.h"
#include "backend/gpu/kernels/norm.h"
#include "backend/gpu/kernels/rope.h"
#include "backend/gpu/kernels/heads.h"
#include "backend/gpu/kernels/weights.h"
#include "backend/gpu/kernels/matrix_tile.h"
#include "backend/gpu/kernels/linear.h"
#include "backend/gpu/kernels/head_linear.h"
#include "backend/gpu/kernels/attention.h"
#include "backend/gpu/kernels/row_stage.h"
#include "backend/gpu/kernels/attention_tiles.h"
#include "backend/gpu/kernels/latent.h"
#include "backend/gpu/kernels/causal_conv.h"
#include "backend/gpu/kernels/gated_delta.h"
#include "backend/gpu/kernels/route.h"
#include "backend/gpu/kernels/top.h"
#include "backend/gpu/kernels/expert_lists.h"
#include "backend/gpu/kernels/experts.h"
#include "backend/gpu/kernels/unit_product.h"
#include "backend/gpu/kernels/unit_one.h"
#include "backend/gpu/kernels/unit_normed_one.h"
#include "backend/gpu/kernels/unit_experts_one.h"
#include "backend/gpu/kernels/unit_many.h"
// clang-format on
