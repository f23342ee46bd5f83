// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/request_limits.h"

#include <gtest/gtest.h>

#include <string>

#include "tandem/v1/jobs.pb.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::controller {
namespace {

constexpr RequestLimits kLimits{.string_bytes = 10, .list_entries = 3};

std::string Why(const google::protobuf::Message& request) {
  return std::string(CheckLimits(request, kLimits).message());
}

TEST(RequestLimitsTest, ALongTextIsNamedByItsPath) {
  v1::SubmitRequest request;
  request.mutable_spec()->mutable_data()->set_train(std::string(10, 'x'));
  EXPECT_EQ(Why(request), "");
  request.mutable_spec()->mutable_data()->set_train(std::string(11, 'x'));
  EXPECT_EQ(Why(request), "spec.data.train: 11 bytes; allowed are at most 10");
}

TEST(RequestLimitsTest, LongListOrMapIsNamed) {
  v1::ReportBatch batch;
  batch.add_reports();
  for (int i = 0; i < 4; ++i) {
    (*batch.mutable_reports(0)->mutable_scalars())[std::to_string(i)] = i;
  }
  EXPECT_EQ(Why(batch), "reports.scalars: 4 entries; allowed are at most 3");
  v1::WorkerMessage message;
  v1::Inventory& inventory = *message.mutable_hello()->mutable_inventory();
  inventory.add_slots()->set_name("short");
  EXPECT_EQ(Why(message), "");
  inventory.add_slots()->set_name("much too long");
  EXPECT_EQ(Why(message), "hello.inventory.slots.name: 13 bytes; allowed are at most 10");
}

TEST(RequestLimitsTest, NumbersAreBoundedByMessageSize) {
  v1::ReportBatch batch;
  v1::Norms& norms = *batch.add_reports()->mutable_norms();
  for (int i = 0; i < 100; ++i) {
    norms.add_weight(1);
  }
  EXPECT_EQ(Why(batch), "");
  v1::UploadChunk chunk;
  chunk.mutable_chunk()->set_data(std::string(100, 'x'));
  EXPECT_EQ(Why(chunk), "");
}

}  // namespace
}  // namespace tandem::controller
