// How long the check of a whole job takes, and what of it: processor time, the best of several.
//
// Usage: tandem-bench-check [LAYERS ACCUMULATION]     (80 32)

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>

#include "schedules_v1/checker.h"
#include "schedules_v1/cross_rank.h"
#include "schedules_v1/job_checker.h"
#include "schedules_v1/program_builder.h"
#include "tests/schedules_v1/test_outline.h"

namespace {

using tandem::schedules_v1::BuildSnapshotProgram;
using tandem::schedules_v1::BuildTrainProgram;
using tandem::schedules_v1::BuildValidateProgram;
using tandem::schedules_v1::CheckJob;
using tandem::schedules_v1::CheckProgram;
using tandem::schedules_v1::CheckRanks;
using tandem::schedules_v1::FsdpOptions;
using tandem::schedules_v1::InOneGroup;
using tandem::schedules_v1::Outline;
using tandem::schedules_v1::Program;

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

void Measure(const char* name, const Outline& outline, int accumulation) {
  const FsdpOptions options = TestOptions(outline, /*prefetch=*/1);
  Program train;
  Program validate;
  const double build =
      BestMilliseconds(5, [&] { train = BuildTrainProgram(outline, options, accumulation); });
  validate = BuildValidateProgram(outline, options, accumulation);
  const Program snapshot = BuildSnapshotProgram();
  ShareSlots(train, validate);
  std::cout << name << ": " << train.instructions.size() << " instructions of a step, "
            << validate.instructions.size() << " of a validation\n"
            << "  build the step          " << build << " ms\n"
            << "  check the step          "
            << BestMilliseconds(10, [&] { Require(CheckProgram(outline, train)); }) << " ms\n"
            << "  check two ranks of it   "
            << BestMilliseconds(10,
                                [&] {
                                  Require(CheckRanks(InOneGroup(outline, {&train, &train})));
                                })
            << " ms\n"
            << "  check the whole job     "
            << BestMilliseconds(
                   10,
                   [&] {
                     Require(
                         CheckJob(outline, {.train = &train, .validate = &validate, .snapshot = &snapshot}));
                   })
            << " ms\n";
}

}  // namespace

int main(int argc, char** argv) {
  const int layers = argc > 2 ? std::atoi(argv[1]) : 80;
  const int accumulation = argc > 2 ? std::atoi(argv[2]) : 32;
  if (layers < 1 || accumulation < 1) {
    std::cerr << "usage: tandem-bench-check [LAYERS ACCUMULATION]\n";
    return 2;
  }
  std::cout << layers << " layers, accumulation " << accumulation << "\n";
  Measure("dense", tandem::schedules_v1::TestOutline(layers, /*tied=*/false), accumulation);
  Measure("experts", tandem::schedules_v1::TestMoeOutline(layers), accumulation);
  return 0;
}
