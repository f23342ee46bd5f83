// SPDX-License-Identifier: Apache-2.0
#include "fsdp/initialize.h"

#include <xxhash.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace tandem::fsdp {
namespace {

// An element takes 30 ns, and a model has billions. Each is a pure function, so any thread may write it.
constexpr int64_t kElementsOfAThread = 1 << 19;
constexpr int64_t kMostThreads = 16;  // for one rank of several on a machine

}  // namespace

uint64_t ParameterStream(const Parameter& parameter) {
  return XXH3_64bits(parameter.name.data(), parameter.name.size());
}

template <typename T>
void InitializeParameter(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part,
                         T* values) {
  const uint64_t stream = ParameterStream(parameter);
  const int64_t before = part.begin - parameter.range.begin;
  const auto write = [&](int64_t begin, int64_t end) {
    for (const CommonRun& run : WholeRuns(parameter, {.begin = begin, .end = end})) {
      for (int64_t i = 0; i < run.elements; ++i) {
        values[run.b - before + i] = static_cast<T>(
            InitialValue(init.distribution, init.deviation, seed, stream, static_cast<uint64_t>(run.a + i)));
      }
    }
  };
  const int64_t num_threads = std::clamp<int64_t>(std::min(part.size() / kElementsOfAThread, kMostThreads), 1,
                                                  std::max(1U, std::thread::hardware_concurrency()));
  const int64_t share = (part.size() + num_threads - 1) / num_threads;
  std::vector<std::jthread> threads;
  for (int64_t begin = part.begin + share; begin < part.end; begin += share) {
    threads.emplace_back(write, begin, std::min(begin + share, part.end));
  }
  write(part.begin, std::min(part.begin + share, part.end));
}

template void InitializeParameter(uint64_t, const Parameter&, const ParameterInit&, Range, float*);
template void InitializeParameter(uint64_t, const Parameter&, const ParameterInit&, Range, double*);

}  // namespace tandem::fsdp
