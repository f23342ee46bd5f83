// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "link/trainer_args.h"
#include "platform/log.h"
#include "trainer/backend.h"
#include "trainer/failure.h"
#include "trainer/trainer_process.h"

// One rank of one attempt of a job, on the CPU. Only the worker daemon starts it.
int main(int argc, char** argv) {
  tandem::platform::SetLogComponent("trainer");
  const auto args = tandem::link::TrainerArgs::Parse(argc, argv);
  if (!args.ok()) {
    std::fprintf(stderr, "tandem-trainer: %s\n", std::string(args.status().message()).c_str());
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  // The daemon says when to end. Slurm sends this to every process of a step; the daemon then wants a
  // checkpoint.
  std::signal(SIGTERM, SIG_IGN);
  at::set_num_threads(1);  // a rank's parallelism is its streams
  try {
    return tandem::trainer::RunTrainer(*args, [](const std::string& device, int) {
      if (device == "cuda") {
        throw tandem::trainer::UserError("resources.device: cuda needs the program tandem-trainer-cuda");
      }
      return tandem::trainer::MakeCpuBackend();
    });
  } catch (const std::exception& error) {
    tandem::platform::Log(tandem::platform::LogLevel::kError, error.what());
    return 1;
  }
}
