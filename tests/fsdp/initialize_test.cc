// SPDX-License-Identifier: Apache-2.0
#include "fsdp/initialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tandem::fsdp {
namespace {

// A large part is written by several threads, small ones by one.
TEST(InitializeTest, ALargePartHasTheElementsOfSmallOnes) {
  constexpr int64_t kElements = 3'000'017;
  const Layout layout =
      MakeLayout({{.name = "before", .shape = {5}}, {.name = "large", .shape = {kElements}}}, 4);
  const Parameter& parameter = layout.parameters[1];
  const ParameterInit init{.deviation = 0.02};
  std::vector<float> whole(kElements, -1);
  InitializeParameter(7, parameter, init, parameter.range, whole.data());
  std::vector<float> parts(kElements, -2);
  for (int64_t begin = 0; begin < kElements; begin += 100'003) {
    const Range part{parameter.range.begin + begin,
                     parameter.range.begin + std::min(begin + 100'003, kElements)};
    InitializeParameter(7, parameter, init, part, parts.data() + begin);
  }
  EXPECT_TRUE(whole == parts);
}

}  // namespace
}  // namespace tandem::fsdp
