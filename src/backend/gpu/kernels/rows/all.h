// Every kernel of rows.
#pragma once

#include "backend/gpu/kernels/rows/clip_rows.h"
#include "backend/gpu/kernels/rows/embed.h"
#include "backend/gpu/kernels/rows/mix_blocks.h"
#include "backend/gpu/kernels/rows/read_out.h"
#include "backend/gpu/kernels/rows/round_blocks.h"
#include "backend/gpu/kernels/rows/rows.h"
#include "backend/gpu/kernels/rows/streams.h"
#include "backend/gpu/kernels/rows/top.h"
