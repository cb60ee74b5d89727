// One token's choice of experts from its router's logits.
// Included inside the namespace of one ISA; see kernels-inl.h.

/// p[e] = softmax, sigmoid or the root of softplus of the logits.
static void score_experts(const RouteArgs& args, float* p) {
  const int64_t n = args.experts;
  if (args.score == RouterScoreKind::kSigmoid) {
    for (int64_t e = 0; e < n; e += kLanes) {
      vstore_some(p + e, plain::times_sigmoid(vset(1.0f), vload_some(args.logits + e, n - e)),
                  n - e);
    }
    return;
  }
  if (args.score == RouterScoreKind::kSqrtSoftplus) {
    for (int64_t e = 0; e < n; e += kLanes) {
      vstore_some(p + e, vsoftplus(vload_some(args.logits + e, n - e)), n - e);
    }
    for (int64_t e = 0; e < n; ++e) p[e] = scalar_sqrt(p[e]);
    return;
  }
  float largest = args.logits[0];
  for (int64_t e = 1; e < n; ++e) largest = args.logits[e] > largest ? args.logits[e] : largest;
  Vec sums = vset(0.0f);
  for (int64_t e = 0; e < n; e += kLanes) {
    vstore(p + e, vexp(vsub(vload_some(args.logits + e, n - e), vset(largest))));
    for (int64_t i = n; i < e + kLanes; ++i) p[i] = 0.0f;
    sums = vadd(sums, vload(p + e));
  }
  const Vec total = vset(vreduce_add(sums));
  for (int64_t e = 0; e < n; e += kLanes) vstore(p + e, vdiv(vload(p + e), total));
}

MF_INLINE float score_group(const float* c, int64_t size, GroupScoreKind kind) {
  float best = -__builtin_inff();
  float second = best;
  for (int64_t i = 0; i < size; ++i) {
    if (c[i] > best) {
      second = best;
      best = c[i];
    } else if (c[i] > second) {
      second = c[i];
    }
  }
  return kind == GroupScoreKind::kMax || size == 1 ? best : best + second;
}

/// Sets the scores of all but the best groups to 0. Ties go to the lower group.
static void mask_groups(const RouteArgs& args, float* c, float* scores) {
  const int64_t size = args.experts / args.groups;
  for (int64_t g = 0; g < args.groups; ++g) {
    scores[g] = score_group(c + g * size, size, args.group_score);
  }
  for (int64_t g = 0; g < args.groups; ++g) {
    int64_t better = 0;
    for (int64_t other = 0; other < args.groups; ++other) {
      const bool wins_ties = other < g;
      better += scores[other] > scores[g] || (wins_ties && scores[other] == scores[g]);
    }
    if (better < args.groups_kept) continue;
    for (int64_t i = 0; i < size; ++i) c[g * size + i] = 0.0f;
  }
}

/// The best expert not yet taken; ties and NaN go to the lower id.
MF_INLINE int32_t best_expert(const float* scores, const RouteArgs& args, int64_t taken) {
  int32_t best = -1;
  for (int32_t e = 0; e < static_cast<int32_t>(args.experts); ++e) {
    if (best >= 0 && !(scores[e] > scores[best])) continue;
    bool is_taken = false;
    for (int64_t r = 0; r < taken; ++r) is_taken = is_taken || args.ids[r] == e;
    if (!is_taken) best = e;
  }
  return best;
}

static void route(const RouteArgs& args) {
  const int64_t n = args.experts;
  const int64_t width = (n + 15) / 16 * 16;
  float* p = args.workspace;
  float* c = p + width;
  score_experts(args, p);
  // Scores rise with logits, which are finer where scores saturate.
  const float* order = args.logits;
  if (args.correction_bias != nullptr || args.groups > 1) {
    const float* bias = args.correction_bias;
    for (int64_t e = 0; e < n; ++e) c[e] = bias == nullptr ? p[e] : p[e] + bias[e];
    if (args.groups > 1) mask_groups(args, c, c + width);
    order = c;
  }
  float divisor = args.normalize_epsilon;
  for (int64_t r = 0; r < args.top_k; ++r) {
    args.ids[r] = args.listed == nullptr ? best_expert(order, args, r) : args.listed[r];
    divisor += p[args.ids[r]];
  }
  if (divisor < args.normalize_least) divisor = args.normalize_least;
  if (!args.normalize) divisor = 1.0f;
  for (int64_t r = 0; r < args.top_k; ++r) {
    const int32_t e = args.ids[r];
    const float expert_scale = args.expert_scale == nullptr ? 1.0f : args.expert_scale[e];
    args.weights[r] = p[e] / divisor * args.scale * expert_scale;
  }
}
