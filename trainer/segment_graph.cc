// SPDX-License-Identifier: Apache-2.0
#include "trainer/segment_graph.h"

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

}  // namespace tandem::trainer
