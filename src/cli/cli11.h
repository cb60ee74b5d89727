// The one place that includes CLI11.
#pragma once

#include <CLI/CLI.hpp>
