// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/divided_job.h"

#include <algorithm>
#include <utility>

#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"
#include "schedules/check/together.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {

DividedJob::DividedJob(Outline outline, const std::vector<int>& chunk_of, const BuildOptions& build_options,
                       int num_stages)
    : undivided(std::move(outline)),
      options(build_options),
      stages(DivideIntoStages(
                 undivided, chunk_of,
                 num_stages > 0 ? num_stages : 1 + *std::max_element(chunk_of.begin(), chunk_of.end()))
                 .value()),
      programs(stages.size()) {
  for (size_t s = 0; s < stages.size(); ++s) {
    Build(static_cast<int>(s),
          Pipelined(stages[s].outline, static_cast<int>(stages.size()), options.num_microbatches));
  }
}

void DividedJob::Build(int stage, const PassList& train) {
  const Outline& outline = stages[stage].outline;
  programs[stage] =
      BuildStage(outline, OptionsOf(options, stages[stage].origin), train,
                 ForwardOnly(outline, options.num_validation_microbatches, static_cast<int>(stages.size())))
          .value();
}

std::string DividedJob::Check() const {
  return std::string(CheckStages(undivided, options, stages, programs).message());
}

std::string DividedJob::CheckTogether() const {
  for (const auto member : {&StagePrograms::train, &StagePrograms::begin, &StagePrograms::update,
                            &StagePrograms::validate, &StagePrograms::train_save}) {
    std::vector<const Outline*> outlines;
    std::vector<const Program*> of_name;
    for (size_t s = 0; s < stages.size(); ++s) {
      outlines.push_back(&stages[s].outline);
      of_name.push_back(&(programs[s].*member));
    }
    if (const auto order = RunTogether(outlines, of_name); !order.ok()) {
      return std::string(order.status().message());
    }
  }
  return "";
}

std::vector<int> ByLayers(const Outline& outline, int num_chunks) {
  int num_layers = 0;
  for (const Node& node : outline.nodes) {
    num_layers = std::max(num_layers, node.layer + 1);
  }
  std::vector<int> chunk_of;
  int chunk = 0;
  for (const Node& node : outline.nodes) {
    chunk = node.layer >= 0 ? node.layer * num_chunks / num_layers : chunk;
    chunk_of.push_back(chunk);
  }
  return chunk_of;
}

DividedJob DenseStages(int num_stages, int layers_of_each, int num_microbatches, const std::string& strategy,
                       int ranks, int num_chunks) {
  const Outline outline = SmallDecoder(num_stages * num_chunks * layers_of_each);
  BuildOptions options = OptionsFor(outline, strategy, num_microbatches, ranks);
  options.num_validation_microbatches = std::min(num_microbatches, 2);
  return {outline, ByLayers(outline, num_stages * num_chunks), options, num_stages};
}

std::vector<Stage> TwoStages() {
  const Outline outline = SmallDecoder();
  return DivideIntoStages(outline, ByLayers(outline, 2), 2).value();
}

}  // namespace tandem::schedules
