// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The memory of a unit on one rank, which follows from its placement and precision.
struct UnitMemory {
  // Gathers over the inner axis. If false, the rank's shard is the whole unit, and nodes read it directly
  // (after the gather over the outer group, if gathers_outer).
  bool gathers = true;
  bool gathers_once = false;    // one gather serves the whole run
  bool keeps_gathered = false;  // one gather serves all passes of a microbatch
  bool gathers_outer = false;   // gathers the inner shard over the outer group first
  bool exchanges = true;        // reductions exchange with other ranks; false if alone on the inner axis
  bool accumulates = false;     // adds up contributions to a full gradient, which is reduced once a run
  bool reduces_outer = false;   // reduces over the outer axis after the run's last inner reduction
  int64_t weights = 0;          // this and all below are in bytes
  int64_t published = 0;        // 0 if the unit is not published
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t gathered = 0;
  int64_t outer_gathered = 0;
  int64_t contribution = 0;  // also the size of the staging of its exchange
  int64_t collected = 0;     // also the size of a full gradient and of the staging of its exchange
  int64_t outer_staging = 0;
};

UnitMemory MemoryOf(const Outline& outline, const BuildOptions& options, UnitId unit);

// The buffers and communicators of a unit; -1: it has none.
struct UnitFrame {
  UnitMemory memory;
  BufferId weights = -1;
  BufferId published = -1;
  BufferId gradients = -1;
  BufferId optimizer_state = -1;
  BufferId norm_terms = -1;
  BufferId update_norms = -1;
  BufferId host_update_norms = -1;
  BufferId host_weights = -1;  // this and the next: set if the job saves
  BufferId host_optimizer_state = -1;
  CommunicatorId gather = -1;  // set if memory.gathers
  CommunicatorId reduce = -1;  // set if memory.exchanges and the unit is not frozen
  CommunicatorId outer_gather = -1;
  CommunicatorId outer_reduce = -1;
  // The buffer that gathers read, or nodes if nothing is gathered: the published copy if there is one.
  BufferId shard() const { return published >= 0 ? published : weights; }
};

// Values or gradients that go from or to other stages.
struct Exchange {
  StreamId stream = -1;  // -1 if there are none
  // By index in outline.received or outline.sent. The gradient of a value goes the other way.
  std::vector<CommunicatorId> communicators;
};

// What all programs of a stage share: streams, communicators, persistent buffers and rings.
struct StageFrame {
  std::vector<Stream> streams;
  std::vector<CommunicatorUse> communicators;
  std::vector<Buffer> buffers;

  std::vector<UnitFrame> units;
  std::vector<BufferId> states;
  std::vector<BufferId> host_states;  // by state; -1: Snapshots do not copy it
  std::vector<BufferId> losses;       // by value, the ring; -1: not a loss
  std::vector<BufferId> host_losses;  // by value, the ring on the host; -1: not a loss
  BufferId inputs = -1;
  BufferId host_inputs = -1;
  BufferId batch = -1;
  BufferId host_batch = -1;
  BufferId outcome = -1;
  BufferId host_outcome = -1;

  StreamId compute = -1;
  StreamId gather = -1;
  StreamId reduce = -1;
  StreamId host_to_device = -1;
  StreamId device_to_host = -1;
  StreamId save = -1;  // -1 if the job does not save
  StreamId outer = -1;
  StreamId host = -1;
  std::vector<StreamId> node_streams;              // by node
  std::vector<StreamId> weight_streams;            // by node: the stream of its weight half
  std::vector<CommunicatorId> node_communicators;  // by node; -1 if it does not communicate
  CommunicatorId norm = -1;
  CommunicatorId counts = -1;  // for UpdateStates; -1: no state has a counter
  int64_t counts_bytes = 0;    // size of the counters of all ranks
  Exchange receives;
  Exchange sends;
  Exchange gradient_receives;
  Exchange gradient_sends;
};

StageFrame MakeStageFrame(const Outline& outline, const BuildOptions& options);

}  // namespace tandem::schedules
