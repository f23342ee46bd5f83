// SPDX-License-Identifier: Apache-2.0
#include "trainer/segment_graph.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "schedules/program/text.h"

namespace tandem::trainer {

void SegmentGraph::Run(device::Device& device) {
  if (!has_run_) {
    CallAll();
    has_run_ = true;
    return;
  }
  if (graph_ == nullptr) {
    graph_ = device.Capture([this] { CallAll(); });
  }
  graph_->Launch();
}

void SegmentGraph::CallAll() {
  for (at_ = 0; at_ < calls_.size(); ++at_) {
    (*calls_[at_])();
  }
  at_ = calls_.size() - 1;
}

SegmentGraph& SegmentGraphs::Of(const Segment& segment) {
  std::vector<std::shared_ptr<const Call>> calls;
  for (const BoundInstruction* bound : segment.instructions) {
    if (bound->calls[0] != bound->calls[1]) {
      throw std::logic_error(absl::StrCat(schedules::ToText(*bound->instruction, outline_),
                                          " is in a segment, and is not the same in the next run"));
    }
    calls.push_back(bound->calls[0]);
  }
  std::unique_ptr<SegmentGraph>& graph = graphs_[calls];
  if (graph == nullptr) {
    graph = std::make_unique<SegmentGraph>(std::move(calls));
  }
  return *graph;
}

void SegmentGraphs::Run(SegmentGraph& graph) {
  // On the CPU, several threads come here, and nothing is captured that takes memory.
  if (!graph.captures() || device_.finishes_in_calls()) {
    graph.Run(device_);
    return;
  }
  const int64_t used_before = device_.memory_use().used;
  graph.Run(device_);
  bytes_ += device_.memory_use().used - used_before;
  if (++num_captured_ == graphs_.size()) {
    platform::Log(
        platform::LogLevel::kInfo, "all graphs are captured",
        {{"graphs", absl::StrCat(num_captured_)}, {"bytes_outside_the_arena", absl::StrCat(bytes_)}});
  }
}

}  // namespace tandem::trainer
