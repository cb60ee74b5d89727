// moeflux._core: the C++ facade for Python. Knows buffers, not NumPy; the package's Python part has
// the interface. Every call that computes releases the interpreter's lock.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <moeflux/moeflux.hpp>

#include "service.h"
#include "unlocked.h"

namespace {

namespace py = pybind11;
using moeflux_python::call;
using moeflux_python::drop;
using moeflux_python::exception_of;
using moeflux_python::goes_on;
using moeflux_python::Interrupts;
using moeflux_python::Locked;
using moeflux_python::raise;
using moeflux_python::run;
using moeflux_python::unlocked;
using moeflux_python::Unlocked;
using Tokens = std::vector<int32_t>;

// Between chunks Ctrl-C is looked at, callback or not.
moeflux::Progress progress_of(const py::object& callback) {
  return [&callback](uint64_t done, uint64_t total) {
    const Locked lock;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return callback.is_none() || goes_on(call(callback, py::make_tuple(done, total)));
  };
}

// C-contiguous floats that the library may write.
std::span<float> floats_of(const py::buffer_info& info) {
  if (info.itemsize != sizeof(float) || info.format != py::format_descriptor<float>::format() ||
      info.readonly || PyBuffer_IsContiguous(info.view(), 'C') == 0) {
    raise({moeflux::Code::kInvalidArgument,
           "logits: expected a writable, contiguous array of float32"});
  }
  return {static_cast<float*>(info.ptr), static_cast<size_t>(info.size)};
}

py::dict to_dict(const mf_metrics& m) {
  py::dict dict;
  dict["dense_bytes"] = m.dense_bytes;
  dict["experts_bytes"] = m.experts_bytes;
  dict["expert_cache_bytes"] = m.expert_cache_bytes;
  dict["sequence_bytes"] = m.sequence_bytes;
  dict["cold_bytes_per_token"] = m.cold_bytes_per_token;
  dict["expert_hits"] = m.expert_hits;
  dict["expert_misses"] = m.expert_misses;
  dict["expert_bytes_read"] = m.expert_bytes_read;
  dict["expert_evictions"] = m.expert_evictions;
  dict["expert_stall_us"] = m.expert_stall_us;
  dict["evaluated_tokens"] = m.evaluated_tokens;
  dict["evaluate_us"] = m.evaluate_us;
  dict["waiting_calls"] = m.waiting_calls;
  dict["near_hits"] = m.near_hits;
  dict["far_hits"] = m.far_hits;
  dict["promotions"] = m.promotions;
  dict["bus_bytes"] = m.bus_bytes;
  dict["helped_steps"] = m.helped_steps;
  return dict;
}

py::dict to_dict(const mf_model_info& i) {
  py::dict dict;
  dict["vocab_size"] = i.vocab_size;
  dict["context_length"] = i.context_length;
  dict["num_layers"] = i.num_layers;
  dict["tokenizer_vocab_size"] = i.tokenizer_vocab_size;
  dict["model_type"] = i.model_type;
  dict["device"] = i.device;
  dict["expert_io"] = i.expert_io;
  return dict;
}

moeflux::Model open(const std::string& directory, moeflux::ModelOptions options,
                    const py::object& on_progress, const py::object& on_log) {
  options.should_abort = Interrupts::should_abort;
  options.abort_data = &Interrupts::of_interpreter();
  const moeflux::Progress progress = progress_of(on_progress);
  const moeflux::LogSink log = [&](int32_t, std::string_view message) {
    const Locked lock;
    drop(call(on_log, py::make_tuple(py::str(message.data(), message.size()))));
  };
  return unlocked([&] { return moeflux::Model::open(directory, options, progress, log); });
}

void eval(moeflux::Sequence& sequence, const Tokens& tokens, bool all,
          const std::optional<py::buffer>& logits, const py::object& on_progress) {
  const moeflux::Progress progress = progress_of(on_progress);
  std::optional<py::buffer_info> info;
  if (logits) info = logits->request(true);
  const std::span<float> out = info ? floats_of(*info) : std::span<float>();
  run([&] {
    return all ? sequence.eval_all(tokens, out, progress) : sequence.eval(tokens, out, progress);
  });
}

// A sequence, its tokens, and where the last one's logits go.
using BatchItem = std::tuple<moeflux::Sequence*, Tokens, py::buffer>;

// For each item None or what it failed with.
py::list eval_batch(moeflux::Model& model, const std::vector<BatchItem>& items, int32_t phase) {
  std::vector<py::buffer_info> infos;
  std::vector<moeflux::BatchItem> batch;
  for (const auto& [sequence, tokens, logits] : items) {
    infos.push_back(logits.request(true));
    batch.push_back({sequence, tokens, floats_of(infos.back()), phase});
  }
  const std::vector<moeflux::Status> statuses = [&] {
    const Unlocked other_threads_run;
    return model.eval_batch(batch);
  }();
  Interrupts::of_interpreter().raise_pending();
  py::list outcomes;
  for (const moeflux::Status& status : statuses) {
    outcomes.append(status ? py::object(py::none()) : exception_of(status.error()));
  }
  return outcomes;
}

// How many numbers a vector has, and those of all, one behind another.
py::tuple embed(moeflux::Model& model, const std::vector<std::string>& texts, int64_t dimensions,
                const std::string& prompt_name, const std::string& pooling) {
  const moeflux::EmbedOptions options{
      .dimensions = dimensions, .prompt_name = prompt_name, .pooling = pooling};
  const auto numbers = unlocked([&] { return model.embed(texts, options); });
  const size_t width = texts.empty() ? unlocked([&] { return model.embedding_width(options); })
                                     : numbers.size() / texts.size();
  return py::make_tuple(width, py::bytes(reinterpret_cast<const char*>(numbers.data()),
                                         numbers.size() * sizeof(float)));
}

py::tuple generate(moeflux::Sequence& sequence, const Tokens& prompt,
                   moeflux::GenerateOptions options, const py::object& on_text,
                   const py::object& on_progress) {
  options.on_progress = progress_of(on_progress);
  const moeflux::TextSink sink = [&](std::string_view text) {
    const Locked lock;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return goes_on(call(on_text, py::make_tuple(py::str(text.data(), text.size()))));
  };
  const auto result = unlocked([&] { return sequence.generate(prompt, options, sink); });
  return py::make_tuple(result.finish_reason, result.prompt_tokens, result.generated_tokens,
                        result.prefill_us, result.decode_us);
}

void bind_options(py::module_& module) {
  using moeflux::GenerateOptions;
  using moeflux::ModelOptions;
  using moeflux::SamplerOptions;
  py::class_<ModelOptions>(module, "ModelOptions")
      .def(py::init<>())
      .def_readwrite("device", &ModelOptions::device)
      .def_readwrite("cpu_isa", &ModelOptions::cpu_isa)
      .def_readwrite("precision", &ModelOptions::precision)
      .def_readwrite("context_length", &ModelOptions::context_length)
      .def_readwrite("expert_cache_bytes", &ModelOptions::expert_cache_bytes)
      .def_readwrite("threads", &ModelOptions::threads)
      .def_readwrite("prefix_cache_bytes", &ModelOptions::prefix_cache_bytes)
      .def_readwrite("prefix_cache_directory", &ModelOptions::prefix_cache_directory)
      .def_readwrite("turn_timeout_ms", &ModelOptions::turn_timeout_ms)
      .def_readwrite("cache_type_k", &ModelOptions::cache_type_k)
      .def_readwrite("cache_type_v", &ModelOptions::cache_type_v)
      .def_readwrite("tuning", &ModelOptions::tuning);
  py::class_<GenerateOptions>(module, "GenerateOptions")
      .def(py::init<>())
      .def_readwrite("tokens_max", &GenerateOptions::tokens_max)
      .def_readwrite("stop_strings", &GenerateOptions::stop_strings)
      .def_readwrite("stop_tokens", &GenerateOptions::stop_tokens)
      .def_readwrite("ignore_stop_tokens", &GenerateOptions::ignore_stop_tokens);
  py::class_<SamplerOptions>(module, "SamplerOptions")
      .def(py::init<>())
      .def_readwrite("temperature", &SamplerOptions::temperature)
      .def_readwrite("top_k", &SamplerOptions::top_k)
      .def_readwrite("top_p", &SamplerOptions::top_p)
      .def_readwrite("min_p", &SamplerOptions::min_p)
      .def_readwrite("repeat_penalty", &SamplerOptions::repeat_penalty)
      .def_readwrite("repeat_last_n", &SamplerOptions::repeat_last_n)
      .def_readwrite("presence_penalty", &SamplerOptions::presence_penalty)
      .def_readwrite("frequency_penalty", &SamplerOptions::frequency_penalty)
      .def_readwrite("seed", &SamplerOptions::seed)
      .def_readwrite("typical_p", &SamplerOptions::typical_p)
      .def_readwrite("top_n_sigma", &SamplerOptions::top_n_sigma)
      .def_readwrite("xtc_probability", &SamplerOptions::xtc_probability)
      .def_readwrite("xtc_threshold", &SamplerOptions::xtc_threshold)
      .def_readwrite("dynatemp_range", &SamplerOptions::dynatemp_range)
      .def_readwrite("dynatemp_exponent", &SamplerOptions::dynatemp_exponent)
      .def_readwrite("mirostat", &SamplerOptions::mirostat)
      .def_readwrite("mirostat_tau", &SamplerOptions::mirostat_tau)
      .def_readwrite("mirostat_eta", &SamplerOptions::mirostat_eta)
      .def_readwrite("dry_multiplier", &SamplerOptions::dry_multiplier)
      .def_readwrite("dry_base", &SamplerOptions::dry_base)
      .def_readwrite("dry_allowed_length", &SamplerOptions::dry_allowed_length)
      .def_readwrite("dry_penalty_last_n", &SamplerOptions::dry_penalty_last_n)
      .def_readwrite("dry_sequence_breakers", &SamplerOptions::dry_sequence_breakers)
      .def_readwrite("samplers", &SamplerOptions::samplers)
      .def("add_bias", [](SamplerOptions& options, int32_t token, float bias) {
        options.logit_bias.push_back({token, bias});
      });
}

void bind_model(py::module_& module) {
  using moeflux::Model;
  py::class_<Model>(module, "Model")
      .def(py::init(&open))
      .def("info", [](const Model& self) { return to_dict(self.info()); })
      .def("metrics",
           [](const Model& self) { return to_dict(unlocked([&] { return self.metrics(); })); })
      .def("stop_tokens",
           [](const Model& self) { return unlocked([&] { return self.stop_tokens(); }); })
      .def("tokenize",
           [](const Model& self, const std::string& text, uint32_t flags) {
             return unlocked([&] { return self.tokenize(text, flags); });
           })
      .def("detokenize",
           [](const Model& self, const Tokens& tokens, uint32_t flags) {
             return unlocked([&] { return self.detokenize(tokens, flags); });
           })
      .def("eval_batch", &eval_batch)
      .def("embed", &embed)
      .def("create_sequence",
           [](Model& self) { return unlocked([&] { return self.create_sequence(); }); });
}

void bind_sequence(py::module_& module) {
  using moeflux::Sequence;
  py::class_<Sequence>(module, "Sequence")
      .def("vocab_size", &Sequence::vocab_size)
      .def("cancel",
           [](Sequence& s) {
             const Unlocked other_threads_run;
             s.cancel();
           })
      .def("set_turn_timeout",
           [](Sequence& s, int64_t timeout_ms) {
             run([&] { return s.set_turn_timeout(timeout_ms); });
           })
      .def("position", [](Sequence& s) { return unlocked([&] { return s.position(); }); })
      .def("tokens", [](Sequence& s) { return unlocked([&] { return s.tokens(); }); })
      .def("eval", &eval)
      .def("logits",
           [](Sequence& s, const py::buffer& out) {
             const py::buffer_info info = out.request(true);
             const std::span<float> floats = floats_of(info);
             run([&] { return s.logits(floats); });
           })
      .def("set_sampler",
           [](Sequence& s, const moeflux::SamplerOptions& options) {
             run([&] { return s.set_sampler(options); });
           })
      .def("set_constraint",
           [](Sequence& s, int kind, const std::string& text) {
             run([&] { return s.set_constraint(static_cast<mf_constraint_kind>(kind), text); });
           })
      .def("sample", [](Sequence& s) { return unlocked([&] { return s.sample(); }); })
      .def("generate", &generate)
      .def("checkpoint", [](Sequence& s) { return unlocked([&] { return s.checkpoint(); }); })
      .def("restore", [](Sequence& s, uint64_t id) { run([&] { return s.restore(id); }); })
      .def("drop", [](Sequence& s, uint64_t id) { run([&] { return s.drop(id); }); })
      .def("truncate",
           [](Sequence& s, int64_t position) { run([&] { return s.truncate(position); }); })
      .def("fork", [](Sequence& s) { return unlocked([&] { return s.fork(); }); })
      .def("save",
           [](Sequence& s) {
             const moeflux::Snapshot snapshot = unlocked([&] { return s.save(); });
             return py::bytes(reinterpret_cast<const char*>(snapshot.bytes().data()),
                              snapshot.bytes().size());
           })
      .def("load",
           [](Sequence& s, const py::bytes& bytes) {
             const std::string_view view(bytes);
             run([&] { return s.load(std::as_bytes(std::span(view))); });
           })
      .def("save_file",
           [](Sequence& s, const std::string& path) { run([&] { return s.save_file(path); }); })
      .def("load_file",
           [](Sequence& s, const std::string& path) { run([&] { return s.load_file(path); }); })
      .def("reuse_prefix",
           [](Sequence& s, const Tokens& tokens) {
             return unlocked([&] { return s.reuse_prefix(tokens); });
           })
      .def("keep_prefix", [](Sequence& s) { run([&] { return s.keep_prefix(); }); });
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.attr("__version__") = mf_version_string();
  (void)Interrupts::of_interpreter();  // on the thread that imports
  module.def("end_calls", [] { Interrupts::of_interpreter().end(); });
  bind_options(module);
  bind_model(module);
  bind_sequence(module);
  moeflux_python::bind_service(module);
}
