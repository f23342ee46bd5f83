// SPDX-License-Identifier: Apache-2.0
// How long the programs of a job take to build and to check: processor time, the best of several.
//
// Usage: tandem-bench-check [LAYERS MICROBATCHES]     (80 32)

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <string>

#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"
#include "tests/schedules/test_outlines.h"

namespace {

using tandem::schedules::BuildOptions;
using tandem::schedules::Outline;
using tandem::schedules::StagePrograms;

double BestMilliseconds(int times, const std::function<void()>& work) {
  double best = 1e12;
  for (int i = 0; i < times; ++i) {
    const std::clock_t begin = std::clock();
    work();
    best = std::min(best, 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

void Require(const absl::Status& status) {
  if (!status.ok()) {
    std::cerr << status.message() << "\n";
    std::exit(1);
  }
}

void Measure(const std::string& name, const Outline& outline, int microbatches, int ranks) {
  const BuildOptions options = tandem::schedules::OptionsFor(outline, "zero3", microbatches, ranks);
  StagePrograms stage;
  const double build = BestMilliseconds(5, [&] {
    absl::StatusOr<StagePrograms> built = tandem::schedules::BuildStage(outline, options);
    Require(built.status());
    stage = *std::move(built);
  });
  const double check =
      BestMilliseconds(5, [&] { Require(tandem::schedules::CheckStage(outline, options, stage)); });
  std::cout << name << ": " << stage.train.instructions.size() << " instructions and "
            << stage.train.buffers.size() << " buffers of a step\n"
            << "  passes and addresses  " << build << " ms\n"
            << "  check                 " << check << " ms\n";
}

}  // namespace

int main(int argc, char** argv) {
  const int layers = argc > 2 ? std::atoi(argv[1]) : 80;
  const int microbatches = argc > 2 ? std::atoi(argv[2]) : 32;
  if (layers < 1 || microbatches < 1) {
    std::cerr << "usage: tandem-bench-check [LAYERS MICROBATCHES]\n";
    return 2;
  }
  std::cout << "all programs of a stage: train, begin, update, validate\n";
  Measure("dense, " + std::to_string(layers) + " layers x " + std::to_string(microbatches) + " microbatches",
          tandem::schedules::DenseDecoder({.layers = layers}), microbatches, /*ranks=*/8);
  Measure("experts, " + std::to_string(layers) + " layers x 4 microbatches",
          tandem::schedules::MoeDecoder(layers), /*microbatches=*/4, /*ranks=*/8);
  Measure("Llama-3-8B on 512 ranks, 4 microbatches",
          tandem::schedules::DenseDecoder(tandem::schedules::Llama8b(32, 8192, 4)), /*microbatches=*/4,
          /*ranks=*/512);
  return 0;
}
