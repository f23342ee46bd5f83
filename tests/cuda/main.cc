// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "schedules/check/together.h"

int main(int argc, char** argv) {
  // A queue for each stream of a program, as tandem-trainer-cuda has.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(tandem::schedules::kMostStreams).c_str(),
         /*overwrite=*/0);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
