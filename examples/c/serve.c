// Answers a request of OpenAI's clients in C: serve MODEL_FOLDER PATH BODY
#include <moeflux/moeflux.h>
#include <stdio.h>
#include <string.h>

// The body as it comes, in pieces where the request says "stream": true.
static mf_code print_answer(mf_answer* answer, mf_error* error) {
  mf_answer_piece piece = MF_OPTIONS(piece);
  while (!piece.ended) {
    const mf_code code = mf_answer_next(answer, MF_WAIT_FOREVER, &piece, error);
    if (code != MF_OK) return code;
    fwrite(piece.bytes, 1, piece.size, stdout);
    fflush(stdout);
  }
  fprintf(stderr, "%d %s\n", (int)piece.status, piece.content_type);
  return MF_OK;
}

static mf_code serve(mf_model* model, const char* path, const char* body, mf_error* error) {
  mf_service* service = NULL;
  mf_answer* answer = NULL;
  mf_request request = MF_OPTIONS(request);
  request.method = "POST";
  request.target = path;
  request.body = body;
  request.body_size = strlen(body);
  mf_code code = mf_service_open(model, NULL, &service, error);
  if (code == MF_OK) code = mf_service_submit(service, &request, &answer, error);
  if (code == MF_OK) code = print_answer(answer, error);
  mf_answer_free(answer);
  mf_service_close(service);
  return code;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: serve MODEL_FOLDER PATH BODY\n");
    return 2;
  }
  mf_error error;
  mf_model* model = NULL;
  mf_code code = mf_model_open(argv[1], NULL, &model, &error);
  if (code == MF_OK) code = serve(model, argv[2], argv[3], &error);
  mf_model_close(model);
  if (code == MF_OK) return 0;
  fprintf(stderr, "serve: %s: %s\n", mf_code_name(code), error.message);
  return 1;
}
