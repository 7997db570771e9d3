#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/routing/workload.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

TEST(WorkloadText, OfEveryWorkloadIsReadBack) {
  for (const char* text :
       {"balanced", "concentrated:0.95:1", "concentrated:0.3:16:spread", "concentrated:1:4", "zipf:1.2",
        "lognormal:0.5", "drift", "collapse", "w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"})
    EXPECT_EQ(to_string(parse_workload(text)), text);
}

TEST(WorkloadText, SaysWhichParameterIsWrongAndWhatItMayBe) {
  const auto refusal = [](const char* text) {
    return message_of<InvalidArgument>([&] { parse_workload(text); });
  };
  EXPECT_EQ(refusal("even"),
            "scenario: 'even': no such workload; allowed: balanced, concentrated:F:N[:spread], zipf:S, "
            "lognormal:SIGMA, drift, collapse, w0..w7");
  EXPECT_EQ(refusal("concentrated:95:1"),
            "scenario: 'concentrated:95:1': the share F is '95'; allowed: a fraction in 0..1, such as 0.95");
  EXPECT_EQ(
      refusal("concentrated:0.5:0"),
      "scenario: 'concentrated:0.5:0': the number of experts N is '0'; allowed: a whole number in 1..65536");
  EXPECT_EQ(refusal("concentrated:0.5"),
            "scenario: 'concentrated:0.5': needs a share and a number of experts; allowed: "
            "concentrated:F:N or concentrated:F:N:spread");
  EXPECT_EQ(refusal("concentrated:0.5:2:random"),
            "scenario: 'concentrated:0.5:2:random': 'random' after the number of experts; allowed: spread, "
            "or nothing");
  EXPECT_EQ(refusal("zipf"), "scenario: 'zipf': needs one number; allowed: zipf:S");
  EXPECT_EQ(refusal("zipf:-1"), "scenario: 'zipf:-1': S is '-1'; allowed: a number in 0..32");
  EXPECT_EQ(refusal("lognormal:1x"), "scenario: 'lognormal:1x': SIGMA is '1x'; allowed: a number in 0..32");
  EXPECT_EQ(refusal("lognormal:nan"),
            "scenario: 'lognormal:nan': SIGMA is 'nan'; allowed: a number in 0..32");
  EXPECT_EQ(refusal("drift:3"), "scenario: 'drift:3': drift takes no parameter; allowed: drift");
  EXPECT_EQ(refusal("w8").substr(0, 32), "scenario: 'w8': no such workload");
}

}  // namespace
}  // namespace evenkeel
