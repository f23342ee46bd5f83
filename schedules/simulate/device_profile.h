// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::schedules {

// The speed of a device: rates, from which any instruction can be estimated (cost.h), and times measured in a
// run.

struct ComputeRate {
  double flops_per_second = 0;       // what large products reach
  double peak_flops_per_second = 0;  // the vendor's figure, which MFU refers to; 0: unknown
};

// How ranks reach each other. A collective over n ranks takes
//   latency + (n - 1) · hop + bytes · (n - 1) / n / bytes_per_second.
// `bytes` is the size of the whole gathered or reduced buffer, as NCCL's tests define the bus bandwidth
// (nccl-tests, doc/PERFORMANCE.md), and the latency is that of NCCL's model of a ring (nccl,
// src/graph/tuning.cc).
//
// If there are a link and a network, ranks are assumed to fill machines in the order of their numbers,
// link.max_ranks on each. A group of neighbours then has up to max_ranks members on a machine. A group whose
// members are s ranks apart, such as replicas, has max_ranks / s, at least one. Each rank has its own adapter
// to the network, so a group reaches the part of network.bytes_per_second that corresponds to its share of a
// machine's ranks.
struct LinkRates {
  int max_ranks = 0;  // how many ranks reach each other this way; 0: any number
  double bytes_per_second = 0;
  double latency_seconds = 0;
  double hop_seconds = 0;
};

// The work of one instruction, independent of any device.
struct Work {
  double flops = 0;
  double bytes = 0;       // read and written in the device's memory
  double link_bytes = 0;  // the buffer that a collective gathers, reduces or exchanges
  int ranks = 1;          // size of the group that it communicates with; 1 if it does not communicate
  int stride = 1;         // stride of that group
  auto operator<=>(const Work&) const = default;
};

// The measured time of one kind of instruction.
struct MeasuredTime {
  std::string kind;        // KindOf (cost.h): "backward-input layers.*.mlp bf16", "reduce layers.* add"
  double seconds = 0;      // undisturbed; for a collective, from the arrival of the last rank
  double cpu_seconds = 0;  // processor time of all threads; 0 on a GPU
  Work work;               // the work that took this time; for other work it is scaled (CostModel::Of)
  int64_t samples = 0;     // number of measurements that `seconds` is the mean of
  bool operator==(const MeasuredTime&) const = default;
};

struct DeviceProfile {
  std::string name;      // "h100"
  std::string describe;  // the source of the numbers, in one line
  // By compute type: "fp32", "fp64", "bf16". If known, also "bf16 grouped" for the products of experts, and
  // "bf16 attention" and "bf16 attention backward" for attention's own kernel.
  std::map<std::string, ComputeRate> compute;
  double memory_bytes_per_second = 0;
  double host_bytes_per_second = 0;  // for Snapshots, which copy to the host; 0: memory_bytes_per_second
  int64_t memory_bytes = 0;          // of one device; 0: unknown
  // The device memory of one rank outside its arena: that of the context, with the code that is loaded into
  // it, and that of each communicator of several ranks. A communicator of a single rank takes nothing. 0:
  // unknown.
  int64_t context_bytes = 0;
  int64_t communicator_bytes = 0;
  int64_t graph_pass_bytes = 0;  // for each pass of a node that CUDA graphs hold; 0: unknown
  // Times of the host, which works beside the device: to launch a kernel, and to launch a graph. 0: unknown.
  double launch_issue_seconds = 0;
  double graph_issue_seconds = 0;
  double overhead_seconds = 0;  // added to the work of every instruction that runs something
  // The delay between the end of the instruction that determined an instruction's start (BoundBy in
  // timeline.h) and this start, while a thread or a device queue wakes up: gap_seconds if both are on one
  // stream, wake_seconds if they are on two.
  double gap_seconds = 0;
  double wake_seconds = 0;
  // How much longer than its transfer a collective of several ranks takes: ranks do not arrive together, and
  // an average rank waits this long for the last.
  double skew_seconds = 0;
  LinkRates link;  // within a machine, or its NVLink domain
  // Between machines; bytes_per_second is for all ranks of a machine together. If it is 0, there is no
  // network, and link serves any number of ranks.
  LinkRates network;
  // How many processors the streams of one rank share; 0: each stream has its own engine, except that the
  // streams that compute share one.
  double cores = 0;
  // How much slower compute is while a communication stream works, in [0, 1). On GPUs, collectives take
  // multiprocessors and memory bandwidth.
  double compute_slowdown = 0;
  std::vector<MeasuredTime> measured;  // sorted by kind
};

// "cpu", "h100", "h200".
std::vector<std::string> PresetProfileNames();

// Returns NotFound, with the known names, for another name.
absl::StatusOr<DeviceProfile> PresetProfile(absl::string_view name);

// The vendor's figure for a device by its driver's name for it ("NVIDIA H200") and the compute type ("bf16");
// 0 if it is unknown. A name means one product: an "NVIDIA H100 PCIe" is slower than the SXM of the presets,
// and is unknown.
double PeakFlops(absl::string_view device, absl::string_view type);

// A profile as JSON text, and back. The keys are the fields' names; a missing key has DeviceProfile's
// default. An error is InvalidArgument with one line that names the key and what is allowed.
std::string ProfileToJson(const DeviceProfile& profile);
absl::StatusOr<DeviceProfile> ProfileFromJson(absl::string_view text);

}  // namespace tandem::schedules
