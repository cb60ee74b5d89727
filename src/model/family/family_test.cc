#include "model/family/family.h"

#include <gtest/gtest.h>

#include <set>

#include "model/config/config.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

TEST(Family, UnknownModelTypeListsTheKnownOnes) {
  const auto unknown = find_family("gpt2");
  testing::expect_error(unknown, ErrorCode::kUnsupported, {"model_type \"gpt2\""});
  for (const Family* family : families()) {
    for (const std::string_view type : family->model_types) {
      testing::expect_error(unknown, ErrorCode::kUnsupported, {type});
    }
  }
}

TEST(Family, EveryModelTypeLeadsToOneCompleteFamily) {
  std::set<std::string_view> seen;
  ASSERT_FALSE(families().empty());
  for (const Family* family : families()) {
    EXPECT_FALSE(family->model_types.empty());
    EXPECT_NE(family->read_spec, nullptr);
    EXPECT_NE(family->name_scheme, nullptr);
    EXPECT_NE(family->create, nullptr);
    for (const std::string_view type : family->model_types) {
      EXPECT_TRUE(seen.insert(type).second) << type << " belongs to two families";
      const auto found = find_family(type);
      ASSERT_TRUE(found.ok());
      EXPECT_EQ(*found, family);
    }
  }
}

TEST(Family, NamesAreMatchedWhole) {
  for (const std::string_view type : families().front()->model_types) {
    EXPECT_FALSE(find_family(type.substr(0, type.size() / 2)).ok());
    EXPECT_FALSE(find_family(std::string(type) + "x").ok());
  }
  EXPECT_FALSE(find_family("").ok());
}

// Every family reads an empty config without a crash and says what is missing.
TEST(Family, EmptyConfigNamesAMissingKey) {
  for (const Family* family : families()) {
    const std::string type(family->model_types.front());
    auto config = Config::parse("{\"model_type\": \"" + type + "\"}");
    ASSERT_TRUE(config.ok());
    testing::expect_error(family->read_spec(*config), ErrorCode::kInvalidArgument,
                          {"config.json", "missing"});
  }
}

}  // namespace
}  // namespace moeflux
