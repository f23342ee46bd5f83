// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/device_profile.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::schedules {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr int64_t kMebibyte = int64_t{1} << 20;

// One processor of a virtual machine with an AMD EPYC of no known model or clock: the best of 40 products
// [1024, 128] × [128, 704] with MKL on one thread, the best copy of 256 MiB, and all-gathers of 1 KiB and
// 4 MiB over two processes with Gloo on the loopback device (PyTorch 2.11). Kernels that are small, or no
// products, are slower: measure a profile of the machine in question. bf16, whose elements are converted in
// tiles, at the share of fp32's rate that the same product had on another such machine: 138 of 174 Gflop/s.
DeviceProfile Cpu() {
  return {
      .name = "cpu",
      .describe = "one AMD EPYC core a rank and Gloo on loopback, as measured on one virtual machine",
      .compute = {{"fp32", {.flops_per_second = 85 * kGiga}},
                  {"fp64", {.flops_per_second = 41 * kGiga}},
                  {"bf16", {.flops_per_second = 67 * kGiga}}},
      .memory_bytes_per_second = 15 * kGiga,
      .overhead_seconds = 10 * kMicro,
      .link = {.bytes_per_second = 0.8 * kGiga, .latency_seconds = 230 * kMicro},
      .cores = 1,
  };
}

// NVLink of the fourth generation, 8 GPUs: the measured bus bandwidth of a 1 GiB all-gather over 4 H200s with
// NCCL 2.28.9, 326 GB/s. Base latency and hops are those of NCCL's own model for a ring with the simple
// protocol (src/graph/tuning.cc: 8.4, 3.4 and, on a network, 14 µs); they are a little too good for small
// ones: 64 MiB come at 291 GB/s by these and at 266 measured, 8 MiB at 166 and at 143.
LinkRates NvLink() {
  return {.max_ranks = 8,
          .bytes_per_second = 326 * kGiga,
          .latency_seconds = 8.4 * kMicro,
          .hop_seconds = 3.4 * kMicro};
}

// Assumed, not measured: one 400 Gb/s adapter a GPU at 90 %, all 8 of a machine together.
LinkRates EightAdapters() {
  return {.bytes_per_second = 8 * 45 * kGiga, .latency_seconds = 8.4 * kMicro, .hop_seconds = 14 * kMicro};
}

// Rates of bf16 that an H200 sustains within a step, at its 700 W and 1.4 to 1.5 GHz: products of
// Llama-3-8B's layers and head, products of 128 experts of 768, and cuDNN's attention, whose backward repeats
// its bits. For a moment and alone, products reach 802 TFLOP/s. bench/RESULTS.md, "Sustained rates", has the
// measurements.
std::map<std::string, ComputeRate> SustainedRates() {
  return {{"bf16", {.flops_per_second = 695 * kTera, .peak_flops_per_second = 989.4 * kTera}},
          {"bf16 grouped", {.flops_per_second = 495 * kTera}},
          {"bf16 attention", {.flops_per_second = 500 * kTera}},
          {"bf16 attention backward", {.flops_per_second = 350 * kTera}}};
}

// Products of 8192³ in fp32 (without TF32) and fp64 (on the tensor cores) as measured on one H100 SXM with
// PyTorch 2.11; peaks are NVIDIA's data sheet's, dense. Rates of bf16 are those of an H200. Memory: the share
// of a copy's rate that an H200's optimizer sustains (0.906), of the H100's 3.02 TB/s. What one more kernel
// costs is assumed, and so is the rate of copies to the host: 16 lanes of PCIe 5 have 63 GB/s. What a rank
// takes beside its arena is what the driver said on two H200s for eight layers of Llama-3-8B in bf16 under
// six strategies, with 2 to 5 communicators (bench/strategies.py): a context with cuBLAS, cuDNN and the
// kernels of a step, and NCCL's buffers. NCCL's collectives slow products beside them by 19 to 30 % with its
// defaults and by 11 to 20 % in symmetric windows, measured on 4 H200s: a fifth is taken. What launches take
// was measured on the host of an H200, in three jobs: 8.9 to 9.6 µs a kernel, where a host sleeps between two
// launches up to 14; 7 to 16 a graph. Graphs of 144 passes took 4 MiB, of 30 passes 2 MiB (bench/RESULTS.md,
// "CUDA graphs").
DeviceProfile H100() {
  DeviceProfile profile{
      .name = "h100",
      .describe =
          "H100 SXM: sustained rates as measured on an H200, links on 4; 8 GPUs a machine, the network "
          "assumed "
          "(400 Gb/s a GPU)",
      .compute = {{"fp32", {.flops_per_second = 51.6 * kTera, .peak_flops_per_second = 66.9 * kTera}},
                  {"fp64", {.flops_per_second = 55.3 * kTera, .peak_flops_per_second = 66.9 * kTera}}},
      .memory_bytes_per_second = 2.74 * kTera,
      .host_bytes_per_second = 55 * kGiga,
      .memory_bytes = 81079 * kMebibyte,
      .context_bytes = 1625 * kMebibyte,
      .communicator_bytes = 232 * kMebibyte,
      .graph_pass_bytes = int64_t{28} << 10,
      .launch_issue_seconds = 9 * kMicro,
      .graph_issue_seconds = 8 * kMicro,
      .overhead_seconds = 5 * kMicro,
      .link = NvLink(),
      .network = EightAdapters(),
      .compute_slowdown = 0.2,
  };
  profile.compute.merge(SustainedRates());
  return profile;
}

// As H100. The memory rate is the optimizer step's under load; a copy of 2 GiB alone reaches 4.25 TB/s.
DeviceProfile H200() {
  DeviceProfile profile = H100();
  profile.name = "h200";
  profile.describe =
      "H200 SXM: sustained rates measured on one, links on 4; 8 GPUs a machine, the network assumed (400 "
      "Gb/s "
      "a GPU)";
  profile.compute["fp32"].flops_per_second = 51.1 * kTera;
  profile.compute["fp64"].flops_per_second = 56.5 * kTera;
  profile.memory_bytes_per_second = 3.85 * kTera;
  profile.memory_bytes = 143155 * kMebibyte;
  return profile;
}

}  // namespace

std::vector<std::string> PresetProfileNames() { return {"cpu", "h100", "h200"}; }

absl::StatusOr<DeviceProfile> PresetProfile(absl::string_view name) {
  if (name == "cpu") {
    return Cpu();
  }
  if (name == "h100") {
    return H100();
  }
  if (name == "h200") {
    return H200();
  }
  return absl::NotFoundError(absl::StrCat("there is no device profile ", name, "; there are ",
                                          absl::StrJoin(PresetProfileNames(), ", ")));
}

double PeakFlops(absl::string_view device, absl::string_view type) {
  const DeviceProfile profile = device == "NVIDIA H100 80GB HBM3" ? H100()
                                : device == "NVIDIA H200"         ? H200()
                                                                  : DeviceProfile{};
  const auto rate = profile.compute.find(std::string(type));
  return rate == profile.compute.end() ? 0 : rate->second.peak_flops_per_second;
}

}  // namespace tandem::schedules
