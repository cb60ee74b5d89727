#include "cli/foreign_options.h"

#include <algorithm>
#include <array>

namespace moeflux {
namespace {

using enum ForeignEffect;
using enum ForeignValue;

constexpr std::string_view kNearCache =
    "--near-cache SIZE says how much of the device's memory experts take (default: what is free), "
    "and --device where all else lies";
constexpr std::string_view kNoNearCache =
    "--near-cache 0 leaves all experts in host memory, and --device cpu computes there";
constexpr std::string_view kGpus = "--device names GPUs, --split says what each of several has";
constexpr std::string_view kDownload =
    "-hf ORG/NAME:QUANT names a model of the hub, and moeflux pull ORG/NAME:FILE a file of it; "
    "from "
    "elsewhere get the file and name it with -m";
constexpr std::string_view kRotary = "rotary scaling comes from the model's config.json or keys";
constexpr std::string_view kDraft =
    "drafts repeat the text itself or come of --draft-model or --draft-mtp, see --draft and "
    "--draft-max";
constexpr std::string_view kAdapter = "there are no adapters; merge them into the model first";
constexpr std::string_view kImages = "there is no input but text";
constexpr std::string_view kRead =
    "weights are read, not mapped, and experts stream from the drive";
constexpr std::string_view kChunk =
    "prompts are evaluated in chunks that suit the device (--tune prefill-chunk=N)";
constexpr std::string_view kThreads = "--threads and --tune pin=on say how threads are used";
constexpr std::string_view kAlways = "it is always so";
constexpr std::string_view kAlone = "it would change nothing here";
constexpr std::string_view kModels =
    "without -m, serve loads the models of moeflux list and presets of --config as requests name "
    "them";
constexpr std::string_view kPage = "the page is served wherever the build has it";
constexpr std::string_view kShift = "a full context ends the text; it is never shifted";
constexpr std::string_view kInRequest = "requests say so themselves, see docs/server.md";

constexpr std::array kForeignOptions = std::to_array<ForeignOption>({
    // Models and where they come from.
    {"-hff,--hf-file", kRefused, kOne, kDownload},
    {"-hft,--hf-token", kRefused, kOne, "the variable HF_TOKEN holds the token"},
    {"-mu,--model-url", kRefused, kOne, kDownload},
    {"-dr,--docker-repo", kRefused, kOne, kDownload},
    {"--offline", kIgnored, kNone, "HF_HUB_OFFLINE=1 keeps -hf off the network"},
    {"-cl,--cache-list", kRefused, kNone, "moeflux list does that"},
    {"--models-dir", kRefused, kOne, kModels},
    {"--models-preset", kRefused, kOne, kModels},
    {"--models-max", kRefused, kOne,
     "--memory bounds all models together, and --keep-alive says how long an idle one stays"},
    {"--models-autoload,--no-models-autoload", kIgnored, kNone, kModels},
    {"--lora", kRefused, kOne, kAdapter},
    {"--lora-scaled", kRefused, kOne, kAdapter},
    {"--control-vector", kRefused, kOne, kAdapter},
    {"--control-vector-scaled", kRefused, kOne, kAdapter},
    {"--override-kv", kRefused, kOne, "keys of a GGUF are taken as they are"},
    {"--check-tensors", kIgnored, kNone, "experts of a pack are always checked"},
    {"-mm,--mmproj", kRefused, kOne, kImages},
    {"-mmu,--mmproj-url", kRefused, kOne, kImages},
    {"--mmproj-auto,--no-mmproj,--no-mmproj-auto", kIgnored, kNone, kImages},
    {"--mmproj-offload,--no-mmproj-offload", kIgnored, kNone, kImages},
    {"--image,--audio,--video", kRefused, kOne, kImages},
    {"--draft,--draft-n,--draft-max,--spec-draft-n-max", kRefused, kOne, kDraft},
    {"--draft-min,--draft-n-min,--spec-draft-n-min", kRefused, kOne, kDraft},
    {"--draft-p-min,--spec-draft-p-min", kRefused, kOne, kDraft},
    {"--spec-type", kRefused, kOne, kDraft},
    {"-ngld,--gpu-layers-draft,--n-gpu-layers-draft", kRefused, kOne,
     "a model that drafts lies on the device of the other (see --draft-model)"},
    {"-lcs,--lookup-cache-static", kRefused, kOne, kDraft},
    {"-lcd,--lookup-cache-dynamic", kRefused, kOne, kDraft},
    // Where weights lie.
    {"-ngl,--gpu-layers,--n-gpu-layers", kRefused, kOne, kNearCache},
    {"-ot,--override-tensor", kRefused, kOne, kNearCache},
    {"-ncmoe,--n-cpu-moe", kRefused, kOne, kNearCache},
    {"-ncffn,--n-cpu-ffn", kRefused, kOne, kNearCache},
    {"--moe-cache-mib", kRefused, kOne, kNearCache},
    {"-cmoe,--cpu-moe", kRefused, kNone, kNoNearCache},
    {"-sm,--split-mode", kRefused, kOne, kGpus},
    {"-ts,--tensor-split", kRefused, kOne, kGpus},
    {"-mg,--main-gpu", kRefused, kOne, "--device cuda:N names a GPU"},
    {"--rpc", kRefused, kOne, "a model runs on one machine"},
    {"--list-devices", kRefused, kNone, "moeflux devices lists them"},
    {"-fit,--fit", kIgnored, kSwitch, "memory is always planned to fit"},
    {"-fitt,--fit-target", kIgnored, kOne, "memory is always planned to fit"},
    {"-fitc,--fit-ctx", kIgnored, kOne, "-c asks for a context"},
    {"--mmap,--no-mmap", kIgnored, kNone, kRead},
    {"--mlock", kIgnored, kNone, kRead},
    {"-lm,--load-mode", kIgnored, kOne, kRead},
    {"-lzm,--lazy-mode", kIgnored, kOne, kRead},
    {"-dio,--direct-io,-ndio,--no-direct-io", kIgnored, kNone,
     "--tune expert-io=direct asks for it"},
    {"--no-host", kIgnored, kNone, kAlone},
    {"--repack,-nr,--no-repack", kIgnored, kNone,
     "moeflux pack lays weights out for the processor"},
    {"-kvo,--kv-offload", kIgnored, kNone, kAlways},
    {"-nkvo,--no-kv-offload", kIgnored, kNone, "the KV cache lies on the device, or where it fits"},
    {"--op-offload,--no-op-offload", kIgnored, kNone, "--plan says who computes experts"},
    // Context and batches.
    {"-b,--batch-size", kIgnored, kOne, kChunk},
    {"-ub,--ubatch-size", kIgnored, kOne, kChunk},
    {"-np,--parallel", kIgnored, kOne, "only serve and bench have several sequences"},
    {"-cb,--cont-batching", kIgnored, kNone, kAlways},
    {"-nocb,--no-cont-batching", kIgnored, kNone, "serve --parallel 1 takes one request at a time"},
    {"-fa,--flash-attn", kIgnored, kSwitch, "attention is always fused"},
    {"-kvu,--kv-unified,-no-kvu,--no-kv-unified", kIgnored, kNone, kAlone},
    {"--swa-full", kIgnored, kNone, kAlone},
    {"-dt,--defrag-thold", kIgnored, kOne, "the KV cache is never fragmented"},
    {"--keep", kIgnored, kOne, kShift},
    {"--context-shift,--ctx-shift,--no-context-shift,--no-ctx-shift", kIgnored, kNone, kShift},
    {"-ctxcp,--ctx-checkpoints,--swa-checkpoints", kIgnored, kOne, "they are made as needed"},
    {"-cram,--cache-ram", kIgnored, kOne, "--states FOLDER keeps prefixes across restarts"},
    {"--cache-prompt", kIgnored, kNone, kAlways},
    {"--no-cache-prompt", kIgnored, kNone, kInRequest},
    {"--cache-reuse", kIgnored, kOne, "a common beginning of prompts is always reused"},
    {"--slot-save-path", kRefused, kOne, "--states FOLDER keeps prefixes across restarts"},
    {"--rope-scaling", kRefused, kOne, kRotary},
    {"--rope-scale", kRefused, kOne, kRotary},
    {"--rope-freq-base", kRefused, kOne, kRotary},
    {"--rope-freq-scale", kRefused, kOne, kRotary},
    {"--yarn-orig-ctx", kRefused, kOne, kRotary},
    {"--yarn-ext-factor", kRefused, kOne, kRotary},
    {"--yarn-attn-factor", kRefused, kOne, kRotary},
    {"--yarn-beta-slow", kRefused, kOne, kRotary},
    {"--yarn-beta-fast", kRefused, kOne, kRotary},
    // Threads.
    {"-tb,--threads-batch", kIgnored, kOne, kThreads},
    {"-C,--cpu-mask", kIgnored, kOne, kThreads},
    {"-Cr,--cpu-range", kIgnored, kOne, kThreads},
    {"-Cb,--cpu-mask-batch", kIgnored, kOne, kThreads},
    {"--cpu-strict", kIgnored, kOne, kThreads},
    {"--prio", kIgnored, kOne, "nice sets a program's priority"},
    {"--poll", kIgnored, kOne, kThreads},
    {"--threads-http", kIgnored, kOne, kAlone},
    // The terminal.
    {"-co,--color", kIgnored, kSwitch, "colour is for terminals; NO_COLOR=1 turns it off"},
    {"--log-colors", kIgnored, kSwitch, "colour is for terminals; NO_COLOR=1 turns it off"},
    {"-v,--verbose,--log-verbose", kIgnored, kNone, "--log-level debug says more"},
    {"-lv,--verbosity,--log-verbosity", kIgnored, kOne, "--log-level debug says more"},
    {"--log-disable", kIgnored, kNone, "--log-level error says no more than errors"},
    {"--log-file", kRefused, kOne, "notes go to standard error (2> FILE)"},
    {"--log-prefix,--no-log-prefix,--log-timestamps,--no-log-timestamps", kIgnored, kNone, kAlone},
    {"--simple-io", kIgnored, kNone, "a pipe gets plain text"},
    {"-i,--interactive,-if,--interactive-first", kRefused, kNone,
     "moeflux chat converses; moeflux run continues a prompt"},
    {"-st,--single-turn", kRefused, kNone, "moeflux chat -p QUESTION < /dev/null ends after one"},
    {"-mli,--multiline-input", kIgnored, kNone, "a line that ends in \\ goes on"},
    {"--display-prompt", kIgnored, kNone, kAlways},
    {"--no-display-prompt", kRefused, kNone, "run --quiet prints only the generated text"},
    {"--verbose-prompt", kRefused, kNone, "moeflux tokenize shows the tokens of a text"},
    {"-sp,--special", kIgnored, kNone, "special tokens are not printed"},
    {"--warmup,--no-warmup", kIgnored, kNone, "only bench warms up"},
    {"--perf,--no-perf", kIgnored, kNone, "run prints its statistics, --quiet none"},
    {"--show-timings,--no-show-timings", kIgnored, kNone, "chat --stats shows them"},
    {"-e,--escape,--no-escape", kIgnored, kNone, "prompts are taken as they are; use $'...' or -f"},
    {"-bf,--binary-file", kRefused, kOne, "-f FILE reads a prompt from a file"},
    {"-sysf,--system-prompt-file", kRefused, kOne, "--system-prompt \"$(cat FILE)\""},
    {"--in-prefix,--in-suffix", kRefused, kOne, "chat templates put questions in place"},
    {"-no-cnv,--no-conversation", kIgnored, kNone, "moeflux run continues a prompt"},
    // Templates and reasoning.
    {"--jinja", kIgnored, kNone, "templates are always rendered as Jinja"},
    {"--no-jinja", kRefused, kNone, "templates are always rendered as Jinja"},
    {"--chat-template", kRefused, kOne, "--chat-template-file FILE takes a template"},
    {"--chat-template-kwargs", kRefused, kOne, kInRequest},
    {"--skip-chat-parsing,--no-skip-chat-parsing", kIgnored, kNone, kAlone},
    {"--reasoning-format", kIgnored, kOne, kInRequest},
    {"-rea,--reasoning", kIgnored, kSwitch, "/think in chat, or the request, switches reasoning"},
    {"--reasoning-effort", kIgnored, kOne, kInRequest},
    {"--reasoning-budget-message", kRefused, kOne, "a model's own marker closes its reasoning"},
    {"-bs,--backend-sampling", kIgnored, kNone, kAlone},
    {"--spm-infill", kIgnored, kNone, kAlone},
    // The server.
    {"--path,--media-path", kRefused, kOne, "moeflux serves no files"},
    {"--api-prefix", kRefused, kOne, "a proxy in front adds a prefix"},
    {"--ssl-key-file,--ssl-cert-file", kRefused, kOne, "a proxy in front adds TLS"},
    {"--ui,--webui,--no-ui,--no-webui", kIgnored, kNone, kPage},
    {"--ui-config,--webui-config", kIgnored, kOne, kPage},
    {"--cors-origins", kRefused, kOne, "--allow-origin ORIGIN names one"},
    {"-to,--timeout", kIgnored, kOne, "no answer is cut off for its time"},
    {"--sse-ping-interval", kIgnored, kOne, kAlone},
    {"--reuse-port", kIgnored, kNone, kAlone},
    {"--metrics", kIgnored, kNone, "GET /metrics is always there"},
    {"--slots,--no-slots", kIgnored, kNone, kAlone},
    {"--props", kIgnored, kNone, kAlone},
    {"--embedding,--embeddings", kIgnored, kNone, "POST /v1/embeddings is always there"},
    {"--embd-normalize", kRefused, kOne, "the model's files say whether vectors are normalised"},
    {"--tools", kRefused, kOne, "clients bring their own tools"},
});

// Whether one of the comma-separated names is this one.
bool has_name(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

std::span<const ForeignOption> foreign_options() { return kForeignOptions; }

const ForeignOption* find_foreign_option(std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kForeignOptions, [&](const ForeignOption& option) { return has_name(option.names, name); });
  return found == kForeignOptions.end() ? nullptr : found;
}

}  // namespace moeflux
