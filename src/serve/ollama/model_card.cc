#include "serve/ollama/model_card.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/ascii.h"
#include "base/format.h"
#include "io/file.h"
#include "plan/model_sizes.h"

namespace moeflux::serve {
namespace {

constexpr uint64_t kThousand = 1'000;
constexpr uint64_t kMillion = kThousand * kThousand;
constexpr uint64_t kBillion = kMillion * kThousand;
constexpr uint64_t kLicenseBytesMax = uint64_t{1} << 20;

// The format of most layers' experts, which are nearly all of a model's bytes: "Q4_K". Without
// experts that of most numbers.
std::string format_name(const LoadedModel& model) {
  std::map<std::string, int64_t> uses;
  const auto add = [&](const QuantFormat& format, int64_t count) {
    uses[format.with_order(WeightOrder::kRowMajor).to_string()] += count;
  };
  for (const ExpertLayer& layer : model.experts.layers) {
    if (layer.num_experts > 0) add(layer.up.format, 1);
  }
  const bool is_dense = uses.empty();
  for (const ClaimedModule& module : model.modules) {
    if (is_dense && !module.is_table) add(module.format, module.shape.num_elements());
  }
  const auto most = std::max_element(
      uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string name = most == uses.end() ? "unknown" : most->first;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

std::string file_format(const LoadedModel& model) {
  const bool is_gguf = model.index.num_files() > 0 && model.index.file(0).path().ends_with(".gguf");
  return is_gguf ? "gguf" : "safetensors";
}

}  // namespace

std::string short_number(uint64_t number) {
  const auto in = [&](uint64_t unit) {
    return static_cast<double>(number) / static_cast<double>(unit);
  };
  const auto digits = [&](uint64_t unit, int behind) {
    return number % unit == 0 ? 0 : behind;  // none where it is whole
  };
  if (number >= kBillion) return formatted("{:.{}f}B", in(kBillion), digits(kBillion, 1));
  if (number >= kMillion) return formatted("{:.{}f}M", in(kMillion), digits(kMillion, 2));
  if (number >= kThousand) return formatted("{:.0f}K", in(kThousand));
  return formatted("{}", number);
}

Json model_details(const Engine& engine) {
  const LoadedModel& model = engine.loaded();
  const std::string& family = model.spec().model_type;
  return {{"parent_model", ""},
          {"format", file_format(model)},
          {"family", family},
          {"families", Json::array({family})},
          {"parameter_size", short_number(measure_model(model).parameters)},
          {"quantization_level", format_name(model)},
          {"context_length", engine.memory_plan().context_length},
          {"embedding_length", model.spec().hidden_size}};
}

Json unloaded_details(const std::string& format) {
  const size_t space = std::min(format.find(' '), format.size());
  const std::string quantization = space < format.size() ? format.substr(space + 1) : "";
  return {{"parent_model", ""},   {"format", lower_case(format.substr(0, space))},
          {"family", ""},         {"families", Json::array()},
          {"parameter_size", ""}, {"quantization_level", quantization}};
}

Json model_info(const Engine& engine, const std::string& name) {
  const ModelSpec& spec = engine.spec();
  const std::string& family = spec.model_type;
  const MoeSpec& moe = last_moe(spec);
  return {{"general.architecture", family},
          {"general.basename", name},
          {"general.parameter_count", measure_model(engine.loaded()).parameters},
          {family + ".context_length", engine.memory_plan().context_length},
          {family + ".embedding_length", spec.hidden_size},
          {family + ".block_count", spec.num_layers()},
          {family + ".vocab_size", spec.vocab_size},
          {family + ".expert_count", moe.num_experts},
          {family + ".expert_used_count", moe.experts_per_token}};
}

std::string parameter_lines(const Engine& engine, const SamplerOptions& sampler) {
  return formatted("{:<30} {}\n{:<30} {:g}\n{:<30} {}\n{:<30} {:g}\n{:<30} {:g}\n{:<30} {:g}",
                   "num_ctx", engine.memory_plan().context_length, "temperature",
                   sampler.temperature, "top_k", sampler.top_k, "top_p", sampler.top_p, "min_p",
                   sampler.min_p, "repeat_penalty", sampler.repeat_penalty);
}

std::string modelfile(std::string_view name, std::string_view parameters,
                      std::string_view chat_template) {
  std::string text = formatted("FROM {}\n", name);
  for (size_t begin = 0; begin < parameters.size();) {
    const size_t end = std::min(parameters.find('\n', begin), parameters.size());
    text += formatted("PARAMETER {}\n", parameters.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!chat_template.empty()) text += formatted("TEMPLATE \"\"\"{}\"\"\"\n", chat_template);
  return text;
}

std::string license_text(const std::string& folder) {
  for (const char* name : {"LICENSE", "LICENSE.txt", "LICENSE.md"}) {
    const Result<std::string> text =
        read_text_file(formatted("{}/{}", folder, name), kLicenseBytesMax);
    if (text.ok()) return *text;
  }
  return {};
}

}  // namespace moeflux::serve
