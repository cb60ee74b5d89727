// Continues a prompt through the C interface: same_text MODEL_FOLDER PROMPT MODE [VALUE]
//   default   everything as the library has it
//   sampled   a sampler with all options, and no stop tokens; so do the following
//   short     VALUE tokens at most
//   full      a context of VALUE tokens, until it is full
//   stopped   ends before the string VALUE
//   cancelled the callback ends the text with piece VALUE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moeflux/moeflux.h"

enum { PROMPT_TOKENS_MAX = 4096 };

// Counts down to the piece that ends the text; below 0 from the start, none does.
static int print_text(void* user_data, const char* text, size_t bytes) {
  int* pieces_left = user_data;
  if (fwrite(text, 1, bytes, stdout) != bytes) return 0;
  return --*pieces_left != 0;
}

static mf_code set_sampler(const mf_model* model, mf_sequence* sequence, mf_error* error) {
  static const char* const breaker = "\n";
  mf_sampler_options sampler = MF_OPTIONS(sampler);
  if (mf_model_default_sampler(model, &sampler, error) != MF_OK) return error->code;
  sampler.temperature = 0.9f;
  sampler.top_k = 30;
  sampler.top_p = 0.95f;
  sampler.min_p = 0.02f;
  sampler.repeat_penalty = 1.2f;
  sampler.repeat_last_n = 32;
  sampler.presence_penalty = 0.1f;
  sampler.frequency_penalty = 0.2f;
  sampler.seed = 7;
  sampler.typical_p = 0.95f;
  sampler.dynatemp_range = 0.25f;
  sampler.dry_multiplier = 0.75f;
  sampler.dry_sequence_breakers = &breaker;
  sampler.dry_sequence_breakers_count = 1;
  sampler.samplers = "penalties;dry;typ_p;top_k;top_p;min_p;temperature";
  return mf_sequence_set_sampler(sequence, &sampler, error);
}

static mf_code write_text(mf_model* model, const char* prompt, const char* mode, const char* value,
                          mf_error* error) {
  static int32_t tokens[PROMPT_TOKENS_MAX];
  size_t count = 0;
  if (mf_model_tokenize(model, prompt, strlen(prompt), MF_TOKENIZE_ADD_SPECIAL, tokens,
                        PROMPT_TOKENS_MAX, &count, error) != MF_OK) {
    return error->code;
  }
  mf_sequence* sequence = NULL;
  if (mf_sequence_create(model, &sequence, error) != MF_OK) return error->code;
  int pieces_left = strcmp(mode, "cancelled") == 0 ? atoi(value) : -1;
  mf_generate_options options = MF_OPTIONS(options);
  options.on_text = print_text;
  options.user_data = &pieces_left;
  mf_code code = MF_OK;
  if (strcmp(mode, "default") != 0) {
    options.tokens_max = 60;
    if (strcmp(mode, "short") == 0) options.tokens_max = atoi(value);
    if (strcmp(mode, "full") == 0) options.tokens_max = -1;
    if (strcmp(mode, "stopped") == 0) {
      options.stop_strings = &value;
      options.stop_strings_count = 1;
    }
    options.flags = MF_GENERATE_IGNORE_STOP_TOKENS;
    code = set_sampler(model, sequence, error);
  }
  if (code == MF_OK) {
    code = mf_sequence_generate(sequence, tokens, count, &options, NULL, error);
  }
  mf_sequence_free(sequence);
  return code;
}

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  const char* mode = argv[3];
  const char* value = argc == 5 ? argv[4] : "";
  mf_error error;
  mf_model* model = NULL;
  mf_model_options options = MF_OPTIONS(options);
  if (strcmp(mode, "full") == 0) options.context_length = atoi(value);
  mf_code code = mf_model_open(argv[1], &options, &model, &error);
  if (code == MF_OK) code = write_text(model, argv[2], mode, value, &error);
  mf_model_close(model);
  if (code == MF_OK) return putchar('\n') == EOF;  // as the program does
  fprintf(stderr, "same_text: %s\n", error.message);
  return 1;
}
