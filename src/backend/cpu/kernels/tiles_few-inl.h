// Calls Panels::multiply<kBits, kTokens>(), which multiplies a panel of tiles by few tokens, for
// the tokens and bits at hand. Included once by what has one.

template <class Panels, int kBits>
static void few_of(const TileFewArgs& args) {
  const TileExtents e = tile_extents(args.w);
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    switch (args.tokens) {
      case 1:
        Panels::template multiply<kBits, 1>(args, e, panel);
        break;
      case 2:
        Panels::template multiply<kBits, 2>(args, e, panel);
        break;
      case 3:
        Panels::template multiply<kBits, 3>(args, e, panel);
        break;
      default:
        Panels::template multiply<kBits, 4>(args, e, panel);
        break;
    }
  }
}

template <class Panels>
static void few(const TileFewArgs& args) {
  if (args.w.bits == 4) {
    few_of<Panels, 4>(args);
  } else {
    few_of<Panels, 8>(args);
  }
}
