// SPDX-License-Identifier: Apache-2.0
#include "trainer/backend.h"
#include "trainer/failure.h"
#include "trainer/trainer_process.h"

// One rank of one attempt of a job, on the CPU. Only the worker daemon starts it.
int main(int argc, char** argv) {
  return tandem::trainer::TrainerMain(argc, argv, [](const std::string& device, int) {
    if (device == "cuda") {
      throw tandem::trainer::UserError(
          "resources.device: cuda needs the program tandem-trainer-cuda; install it beside tandem-trainer, "
          "or use device: cpu");
    }
    return tandem::trainer::MakeCpuBackend();
  });
}
