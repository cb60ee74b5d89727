#!/bin/sh
# Fetches the Rust crates of rust/Cargo.lock, those versions and no others, into cargo's own folder:
# builds are offline. Does nothing where all are there; fails without cargo.
set -eu
PATH=$PATH:${HOME:-/root}/.cargo/bin
cd "$(dirname "$0")/../rust"
command -v cargo >/dev/null || { echo "fetch_crates.sh: no cargo" >&2; exit 1; }
cargo fetch --locked --offline --quiet 2>/dev/null || cargo fetch --locked --quiet
