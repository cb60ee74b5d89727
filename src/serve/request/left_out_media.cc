#include "serve/request/left_out_media.h"

#include <array>
#include <utility>

#include "base/format.h"

namespace moeflux::serve {

std::string_view media_kind(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 19> kKinds = {{
      {"image_url", "image"},
      {"input_image", "image"},
      {"output_image", "image"},
      {"computer_screenshot", "image"},
      {"image", "image"},
      {"image_embeds", "image"},
      {"input_audio", "audio"},
      {"output_audio", "audio"},
      {"audio_url", "audio"},
      {"audio", "audio"},
      {"audio_embeds", "audio"},
      {"video_url", "video"},
      {"input_video", "video"},
      {"video", "video"},
      {"video_embeds", "video"},
      {"input_file", "file"},
      {"file", "file"},
      {"document", "file"},
      {"container_upload", "file"},
  }};
  for (const auto& [name, kind] : kKinds) {
    if (name == type) return kind;
  }
  return {};
}

std::string_view part_type(const Json& part) {
  if (!part.is_object()) return {};
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string()) return {};
  return type->get_ref<const std::string&>();
}

Json text_part(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

std::string_view media_kind_of(const Json& part) { return media_kind(part_type(part)); }

std::string left_out_line(std::string_view kind) {
  return formatted("[{} left out: this model reads text alone]", kind);
}

std::string left_out_foreign_line(std::string_view type) {
  return formatted("[{} left out: made by another server for itself]", type);
}

ApiError media_in_question(std::string path, std::string_view kind) {
  std::string message = formatted(
      "{} is of kind {}, expected text: this model reads text alone. In earlier messages and in "
      "results of tools such a part is left out with a line that says so",
      path, kind);
  return unsupported_field(std::move(path), std::move(message));
}

}  // namespace moeflux::serve
