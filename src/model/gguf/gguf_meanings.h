// The meaning of GGUF keys and tensors that no architecture asks for, and what keys of a
// config.json that was made from a GGUF file are called in that file.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "checkpoint/gguf.h"
#include "model/gguf/gguf_keys.h"

namespace moeflux {

/// Judges the keys that nobody asked for. Keys that change numbers stick to `keys` as kUnsupported
/// unless they have a value that changes none. Keys that a config.json has under another name go
/// into `config` under it and are judged with the model's spec. Keys that nobody knows go there
/// under their full names.
void judge_unread_gguf_keys(GgufKeys& keys, Json& config);

/// A message about the config.json that was made from a GGUF file, as one about that file: its name
/// and those of its keys, as it spells them, in the place of config.json's.
std::string gguf_message(std::string_view message, std::string_view file, const GgufKeys& keys);

/// The part of a model to which a tensor of no block belongs and which is not run here: "a picture
/// encoder", "a sound encoder", "draft blocks"; empty for tensors of the text model.
std::string_view gguf_other_part(std::string_view tensor);

/// One line that counts the tensors of such parts and of blocks behind the model's layers; empty
/// where there are none.
std::string gguf_parts_left_alone(const gguf::Container& model, int64_t num_layers);

}  // namespace moeflux
