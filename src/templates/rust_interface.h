// The functions that rust/src/lib.rs defines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "templates/template_engine.h"

extern "C" {

struct moeflux_template;

struct moeflux_template_text {
  uint8_t* data;
  size_t size;
};

struct moeflux_template_options {
  uint64_t fuel;
  uint64_t output_bytes_max;
  uint64_t milliseconds_max;
  moeflux::TemplateTime now;
};

/// Kinds of failure.
enum : int32_t {
  kTemplateSyntax = 1,
  kTemplateRaised = 2,
  kTemplateLimit = 3,
  kTemplateRender = 4,
  kTemplateBug = 5,
};

int32_t moeflux_template_compile(const char* source, size_t size, moeflux_template** out,
                                 moeflux_template_text* message, uint64_t* line);
int32_t moeflux_template_render(const moeflux_template* compiled, const char* context, size_t size,
                                const moeflux_template_options* options,
                                moeflux_template_text* text, uint64_t* line);
void moeflux_template_free(moeflux_template* compiled);
void moeflux_template_free_text(moeflux_template_text text);
}
