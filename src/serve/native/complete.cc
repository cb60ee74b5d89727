// llama.cpp's routes that continue texts, in its own words.
#include <initializer_list>
#include <memory>
#include <utility>
#include <variant>

#include "serve/native/completion.h"
#include "serve/native/handlers.h"

namespace moeflux::serve {
namespace {

// `texts` are the fields that the prompt is made of.
void complete(Call& call, std::initializer_list<const char*> texts,
              DecodedNativeCompletion (*decode)(const Json&, const SamplerOptions&,
                                                const Tokenizer&)) {
  Context& service = call.service();
  for (const char* name : texts) {
    const Json* text = Fields(call.body).find(name);
    if (text != nullptr && !service.may_fit(call, *text)) return;
  }
  auto decoded = decode(call.body, service.options().defaults.sampler, service.tokenizer());
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  auto& request = std::get<NativeCompletionRequest>(decoded);
  if (request.text.generation.ignore_stop_tokens) {
    request.never_drawn = service.model().text.defaults.stop_tokens;
  }
  service.complete(
      call, request.text,
      std::make_unique<NativeEncoder>(service.identity("cmpl-", request.text.generation), request,
                                      service.tokenizer()));
}

}  // namespace

void complete_natively(Call& call) { complete(call, {"prompt"}, &decode_native_completion); }

void fill_in(Call& call) {
  complete(call, {"input_prefix", "input_suffix", "input_extra", "prompt"}, &decode_infill);
}

}  // namespace moeflux::serve
