// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string>

#include "schedules/check/together.h"
#include "trainer/backend.h"
#include "trainer/failure.h"
#include "trainer/trainer_process.h"

// One rank of one attempt of a job, on the GPU whose number is its slot. Only the worker daemon starts it.
int main(int argc, char** argv) {
  // A queue for each stream of a program; MakeCudaBackend refuses fewer.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(tandem::schedules::kMostStreams).c_str(),
         /*overwrite=*/0);
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);  // CUDA then counts GPUs as nvidia-smi and the worker do
  return tandem::trainer::TrainerMain(argc, argv, [](const std::string& device, int slot) {
    if (device != "cuda") {
      throw tandem::trainer::UserError("resources.device: " + device + " needs the program tandem-trainer");
    }
    return tandem::trainer::MakeCudaBackend(slot);
  });
}
