// Every kernel of attention and of heads on their way to it.
#pragma once

#include "backend/gpu/kernels/attention/attention_heads.h"
#include "backend/gpu/kernels/attention/attention_merge.h"
#include "backend/gpu/kernels/attention/choose_best.h"
#include "backend/gpu/kernels/attention/gather_rows.h"
#include "backend/gpu/kernels/attention/index_scores.h"
#include "backend/gpu/kernels/attention/latent.h"
#include "backend/gpu/kernels/attention/latent_few.h"
#include "backend/gpu/kernels/attention/mma_attention_few.h"
#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_many.h"
#include "backend/gpu/kernels/attention/mma_attention_wide.h"
#include "backend/gpu/kernels/attention/mma_attention_wide_few.h"
#include "backend/gpu/kernels/attention/mma_attention_wide_many.h"
#include "backend/gpu/kernels/attention/pool_rows.h"
#include "backend/gpu/kernels/attention/rope.h"
#include "backend/gpu/kernels/attention/write_heads.h"
