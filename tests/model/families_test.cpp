// The table of families: what makes a row usable, and that no name means two of them.
#include <gtest/gtest.h>

#include <set>

#include "evenkeel/model/family.h"

namespace evenkeel {
namespace {

TEST(Families, NoNameIsOfTwo) {
  std::set<std::string_view> types, architectures;
  for (const Family& family : known_families()) {
    ASSERT_FALSE(family.model_types.empty());
    for (const std::string_view type : family.model_types) {
      EXPECT_TRUE(types.insert(type).second) << type;
      EXPECT_EQ(known_family(type), &family) << type;
    }
    for (const std::string_view name : family.architectures) {
      EXPECT_TRUE(architectures.insert(name).second) << name;
      EXPECT_EQ(family_of_architecture(std::string(name) + "ForCausalLM"), &family) << name;
      EXPECT_EQ(family_of_architecture(std::string(name) + "Model"), &family) << name;
      EXPECT_EQ(family_of_architecture(std::string(name) + "ForTokenClassification"), nullptr) << name;
    }
  }
  EXPECT_EQ(known_family("llama"), nullptr);
}

TEST(Families, ARowSaysWhereExpertsAreAndWhatChoosesThem) {
  for (const Family& family : known_families()) {
    if (!family.tensors) continue;
    EXPECT_FALSE(family.tensors->modules.empty()) << family.name();
    ASSERT_FALSE(family.tensors->router.empty()) << family.name();
    EXPECT_TRUE(family.tensors->router.front().ends_with("weight")) << family.name();
    EXPECT_TRUE(family.not_permuted.empty()) << family.name();
  }
}

TEST(Families, ANumberOfSharedExpertsComesWithTheirWidth) {
  for (const Family& family : known_families()) {
    if (!family.weights || !family.weights->shared_count) continue;
    EXPECT_TRUE(family.weights->shared_width) << family.name();
  }
}

}  // namespace
}  // namespace evenkeel
