// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/device_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "schedules/simulate/cost.h"
#include "tests/schedules/simulate/hand_program.h"

namespace tandem::schedules {
namespace {

constexpr char kGood[] =
    R"({"name": "mine", "compute": {"fp32": {"flops_per_second": 1e10}}, "memory_bytes_per_second": 1e9,
        "link": {"bytes_per_second": 1e9}})";

TEST(DeviceProfileTest, PresetsGoThroughJsonUnchanged) {
  for (const std::string& name : PresetProfileNames()) {
    DeviceProfile profile = *PresetProfile(name);
    EXPECT_EQ(profile.name, name);
    EXPECT_GT(profile.compute.at("fp32").flops_per_second, 0);
    EXPECT_GT(profile.compute.at("fp64").flops_per_second, 0);
    profile.measured = {{"backward-input layers.*.mlp bf16", 0.1 + 0.2, 0.25, {1e12 / 3, 5e9, 0, 1, 40}, 3},
                        {"reduce layers.* add", 1e-3, 1e-4, {0, 100, 2000, 4, 7}, 3}};
    const std::string text = ProfileToJson(profile);
    const absl::StatusOr<DeviceProfile> read = ProfileFromJson(text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ProfileToJson(*read), text);
    EXPECT_EQ(read->measured, profile.measured);
    EXPECT_EQ(read->memory_bytes, profile.memory_bytes);
    EXPECT_EQ(read->host_bytes_per_second, profile.host_bytes_per_second);
    EXPECT_EQ(read->context_bytes, profile.context_bytes);
    EXPECT_EQ(read->communicator_bytes, profile.communicator_bytes);
    EXPECT_EQ(read->graph_pass_bytes, profile.graph_pass_bytes);
    EXPECT_EQ(read->launch_issue_seconds, profile.launch_issue_seconds);
    EXPECT_EQ(read->graph_issue_seconds, profile.graph_issue_seconds);
    EXPECT_EQ(read->link.max_ranks, profile.link.max_ranks);
  }
  EXPECT_EQ(PresetProfile("tpu").status().message(),
            "there is no device profile tpu; there are cpu, h100, h200");
}

// Bus bandwidth of all-gathers over 4 H200s, measured with NCCL's defaults.
TEST(DeviceProfileTest, H200LinkReproducesTheMeasuredBandwidth) {
  const DeviceProfile profile = *PresetProfile("h200");
  const Outline outline = HandOutline();
  Program program = HandProgram();
  const Workload workload = HandWorkload(4);
  const std::pair<int64_t, double> kMeasured[] = {{8, 143}, {64, 266}, {1024, 326}};  // MiB, GB/s
  for (const auto& [mebibytes, measured] : kMeasured) {
    const double bytes = static_cast<double>(mebibytes << 20);
    program.buffers[2].bytes = {mebibytes << 20, mebibytes << 20};
    const double seconds =
        CostModel(outline, program, workload, profile).Of(program.instructions[0]).seconds -
        profile.overhead_seconds;
    EXPECT_NEAR(bytes * 3 / 4 / seconds / 1e9 / measured, 1, 0.17) << mebibytes << " MiB";
  }
}

TEST(DeviceProfileTest, WhatIsNotGivenHasADefault) {
  const absl::StatusOr<DeviceProfile> read = ProfileFromJson(kGood);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cores, 0);
  EXPECT_EQ(read->network.bytes_per_second, 0);
  EXPECT_TRUE(read->measured.empty());
}

TEST(DeviceProfileTest, MeasuredTimesAreSortedByKind) {
  std::string text = kGood;
  text.insert(1, R"("measured": [{"kind": "b", "seconds": 2}, {"kind": "a", "seconds": 1}], )");
  const absl::StatusOr<DeviceProfile> read = ProfileFromJson(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->measured[0].kind, "a");
}

TEST(DeviceProfileTest, BadFileGetsOneLineWithAllowedValues) {
  const struct {
    std::string from;
    std::string to;
    std::string message;
  } kBad[] = {
      {kGood, "name: mine",
       "the file is not JSON; a device profile is what `tandem profile` writes, an object with name, "
       "compute, "
       "memory_bytes_per_second and link"},
      {kGood, "[1]", "the file is not an object; allowed: an object {...}"},
      {"\"mine\"", "\"\"", "name: \"\" is not allowed; allowed: a name"},
      {"\"mine\"", "3", "name: 3 is not allowed; allowed: a name"},
      {"1e10", "-1", "compute.fp32.flops_per_second: -1 is not allowed; allowed: a number > 0"},
      {"1e10", "\"fast\"", "compute.fp32.flops_per_second: \"fast\" is not allowed; allowed: a number > 0"},
      {"{\"fp32\": {\"flops_per_second\": 1e10}}", "{}",
       "compute: has no compute type; allowed: an object like {\"fp32\": {\"flops_per_second\": 1e12}}"},
      {"\"memory_bytes_per_second\": 1e9,", "",
       "memory_bytes_per_second: is missing; every profile gives it"},
      {"\"link\": {\"bytes_per_second\": 1e9}", "\"cores\": 1",
       "link: is missing; allowed: an object like {\"bytes_per_second\": 1e9}"},
      {"\"link\": {", "\"link\": {\"max_ranks\": 1.5, ",
       "link.max_ranks: 1.5 is not allowed; allowed: an integer from 0 to 1048576"},
      {"\"link\": {", "\"compute_slowdown\": 1, \"link\": {",
       "compute_slowdown: 1 is not allowed; allowed: a number ≥ 0 and < 1"},
      {"\"link\": {", "\"measured\": [{\"kind\": \"a\", \"seconds\": -2}], \"link\": {",
       "measured[0].seconds: -2 is not allowed; allowed: a number ≥ 0"},
      {"\"link\": {", "\"measured\": [7], \"link\": {",
       "measured[0]: is not an object; allowed: an object {...}"},
      {"\"link\": {", "\"links\": {},  \"link\": {",
       "links: is not a key of a device profile; allowed: name, describe, compute, memory_bytes_per_second, "
       "host_bytes_per_second, memory_bytes, context_bytes, communicator_bytes, graph_pass_bytes, "
       "launch_issue_seconds, graph_issue_seconds, overhead_seconds, gap_seconds, wake_seconds, "
       "skew_seconds, link, network, cores, "
       "compute_slowdown, measured"},
  };
  for (const auto& bad : kBad) {
    std::string text = kGood;
    const size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    text.replace(at, bad.from.size(), bad.to);
    const absl::StatusOr<DeviceProfile> read = ProfileFromJson(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(std::string(read.status().message()), bad.message);
  }
}

TEST(DeviceProfileTest, NoPrefixOfAProfileIsAProfile) {
  const std::string text = ProfileToJson(*PresetProfile("h100"));
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    const absl::Status status = ProfileFromJson(text.substr(0, length)).status();
    EXPECT_FALSE(status.ok()) << length;
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace tandem::schedules
