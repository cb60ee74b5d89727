// Calls few_panel() for the tokens and bits at hand. Included after it by both kinds of tiles.

template <int kBits>
static void few_of(const TileFewArgs& args) {
  const TileExtents e = tile_extents(args.w);
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    switch (args.tokens) {
      case 1:
        few_panel<kBits, 1>(args, e, panel);
        break;
      case 2:
        few_panel<kBits, 2>(args, e, panel);
        break;
      case 3:
        few_panel<kBits, 3>(args, e, panel);
        break;
      default:
        few_panel<kBits, 4>(args, e, panel);
        break;
    }
  }
}

static void few(const TileFewArgs& args) {
  if (args.w.bits == 4) {
    few_of<4>(args);
  } else {
    few_of<8>(args);
  }
}
