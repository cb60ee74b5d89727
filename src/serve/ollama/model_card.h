// The description of a model for Ollama's clients.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/engine.h"
#include "sampling/sampler_options.h"

namespace moeflux::serve {

/// As Ollama writes a number of parameters: "20.90M", "30.5B".
std::string short_number(uint64_t number);

/// The details that are the same in every list and at /api/show.
Json model_details(const Engine& engine);

/// The same of a model that is not loaded: "GGUF Q4_K_M", "safetensors".
Json unloaded_details(const std::string& format);

/// The keys of GGUF that clients read: how large it is, how long a text may be, what it is called.
Json model_info(const Engine& engine, const std::string& name);

/// A line for each setting that requests need not repeat, in the columns that clients split.
std::string parameter_lines(const Engine& engine, const SamplerOptions& sampler);

/// The same as what Ollama would make the model of; `parameters` as above.
std::string modelfile(std::string_view name, std::string_view parameters,
                      std::string_view chat_template);

/// The licence in the model's folder; empty where there is none.
std::string license_text(const std::string& folder);

}  // namespace moeflux::serve
