#include "load/python_json.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(PythonJson, NamesWhatIsNoNumberOfJson) {
  EXPECT_EQ(with_named_floats(R"({"a": [0.0, Infinity], "b": -Infinity, "c": NaN})"),
            R"({"a": [0.0, {"__float__": "Infinity"}], "b": {"__float__": "-Infinity"}, )"
            R"("c": {"__float__": "NaN"}})");
}

TEST(PythonJson, LeavesStringsAsTheyAre) {
  for (const char* text : {R"({"Infinity": "NaN, -Infinity", "b": "\"Infinity", "c": "\\"})",
                           R"({"a": 1.5, "b": null})", R"("NaN)", R"("NaN\)", ""}) {
    EXPECT_EQ(with_named_floats(text), text);
  }
}

}  // namespace
}  // namespace moeflux
