// Answers a question in C: chat MODEL_FOLDER "Who are you?" [CHAT_TEMPLATE]
#include <moeflux/moeflux.h>
#include <stdio.h>

// Prints the answer as it is made.
static mf_code print_answer(mf_answer* answer, mf_error* error) {
  mf_chat_piece piece = MF_OPTIONS(piece);
  do {
    if (mf_answer_next_chat(answer, MF_WAIT_FOREVER, &piece, error) != MF_OK) return error->code;
    fwrite(piece.text, 1, piece.text_bytes, stdout);
    fflush(stdout);
  } while (!piece.ended);
  printf("\n");
  return MF_OK;
}

static mf_code ask(mf_model* model, const char* question, const char* chat_template,
                   mf_error* error) {
  mf_service_options options = MF_OPTIONS(options);
  options.chat_template = chat_template;
  mf_service* service = NULL;
  if (mf_service_open(model, &options, &service, error) != MF_OK) return error->code;

  mf_sampler_options sampler = MF_OPTIONS(sampler);
  mf_message message = MF_OPTIONS(message);
  message.role = "user";
  message.content = question;
  mf_chat_request request = MF_OPTIONS(request);
  request.messages = &message;
  request.messages_count = 1;
  request.tokens_max = 40;
  request.sampler = &sampler;
  mf_answer* answer = NULL;
  mf_code code = mf_model_default_sampler(model, &sampler, error);
  if (code == MF_OK) {
    sampler.seed = 7;
    code = mf_service_chat(service, &request, &answer, error);
  }
  if (code == MF_OK) code = print_answer(answer, error);
  mf_answer_free(answer);
  mf_service_close(service);
  return code;
}

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fprintf(stderr, "usage: chat MODEL_FOLDER QUESTION [CHAT_TEMPLATE]\n");
    return 2;
  }
  mf_error error;
  mf_model* model = NULL;
  mf_code code = mf_model_open(argv[1], NULL, &model, &error);
  if (code == MF_OK) code = ask(model, argv[2], argc == 4 ? argv[3] : NULL, &error);
  mf_model_close(model);
  if (code == MF_OK) return 0;
  fprintf(stderr, "chat: %s: %s\n", mf_code_name(code), error.message);
  return 1;
}
