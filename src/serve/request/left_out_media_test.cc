#include "serve/request/left_out_media.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

TEST(LeftOutMedia, KnowsKindsInTheWordsOfEachInterface) {
  for (const char* type : {"image", "image_url", "input_image"}) {
    EXPECT_EQ(media_kind(type), "image") << type;
  }
  EXPECT_EQ(media_kind("input_audio"), "audio");
  EXPECT_EQ(media_kind("video_url"), "video");
  EXPECT_EQ(media_kind("image_embeds"), "image");
  EXPECT_EQ(media_kind("audio_embeds"), "audio");
  for (const char* type : {"file", "input_file", "document"}) {
    EXPECT_EQ(media_kind(type), "file") << type;
  }
  for (const char* type : {"text", "input_text", "tool_use", ""}) {
    EXPECT_EQ(media_kind(type), "") << type;
  }
  EXPECT_EQ(media_kind_of(Json{{"type", "image"}}), "image");
  EXPECT_EQ(media_kind_of(Json{{"type", 3}}), "");
  EXPECT_EQ(media_kind_of(Json("image")), "");
}

TEST(LeftOutMedia, SaysWhatIsMissingAndWhere) {
  EXPECT_EQ(left_out_line("image"), "[image left out: this model reads text alone]");
  const ApiError error = media_in_question("messages[2].content[0]", "audio");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "unsupported_parameter");
  EXPECT_EQ(error.param, "messages[2].content[0]");
  EXPECT_NE(error.message.find("audio"), std::string::npos);
}

}  // namespace
}  // namespace moeflux::serve
