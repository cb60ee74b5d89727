// Every kernel of routing.
#pragma once

#include "backend/gpu/kernels/route/route_listed.h"
#include "backend/gpu/kernels/route/route_many.h"
#include "backend/gpu/kernels/route/route_tokens.h"
#include "backend/gpu/kernels/route/share_weights.h"
