// Continues a prompt in C: complete MODEL_FOLDER "Once upon a time"
#include <moeflux/moeflux.h>
#include <stdio.h>
#include <string.h>

enum { PROMPT_TOKENS_MAX = 1024 };

static int print_text(void* user_data, const char* text, size_t bytes) {
  (void)user_data;
  fwrite(text, 1, bytes, stdout);
  return fflush(stdout) == 0;  // a reader that has left ends the text
}

static int complete(mf_model* model, const char* prompt, mf_error* error) {
  int32_t tokens[PROMPT_TOKENS_MAX];
  size_t count = 0;
  if (mf_model_tokenize(model, prompt, strlen(prompt), MF_TOKENIZE_ADD_SPECIAL, tokens,
                        PROMPT_TOKENS_MAX, &count, error) != MF_OK) {
    return error->code;
  }
  mf_sequence* sequence = NULL;
  if (mf_sequence_create(model, &sequence, error) != MF_OK) return error->code;

  mf_sampler_options sampler = MF_OPTIONS(sampler);
  mf_generate_options options = MF_OPTIONS(options);
  mf_generate_result result = MF_OPTIONS(result);
  options.tokens_max = 40;
  options.on_text = print_text;
  mf_code code = mf_model_default_sampler(model, &sampler, error);
  if (code == MF_OK) {
    sampler.seed = 7;
    code = mf_sequence_set_sampler(sequence, &sampler, error);
  }
  if (code == MF_OK) {
    code = mf_sequence_generate(sequence, tokens, count, &options, &result, error);
  }
  if (code == MF_OK) printf("\n");
  mf_sequence_free(sequence);
  return code;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: complete MODEL_FOLDER PROMPT\n");
    return 2;
  }
  mf_error error;
  mf_model* model = NULL;
  mf_code code = mf_model_open(argv[1], NULL, &model, &error);
  if (code == MF_OK) code = complete(model, argv[2], &error);
  mf_model_close(model);
  if (code == MF_OK) return 0;
  fprintf(stderr, "complete: %s: %s\n", mf_code_name(code), error.message);
  return 1;
}
