// SPDX-License-Identifier: Apache-2.0
// Users and workers at two addresses of one controller.
#include <string>

#include "tests/controller/secure_service.h"
#include "tests/controller/simulated_worker.h"

namespace tandem::controller {
namespace {

using tls::Role;

class TwoDoorsTest : public ::testing::Test {
 protected:
  TwoDoorsTest() {
    server_ = StartServer(folder_, {.worker_listen = {"127.0.0.1:0"},
                                    .tls = certificates_.Files("controller", certificates_.OfServer()),
                                    .metrics_listen = "off"});
  }
  const std::string& users() const { return server_->addresses().at(0); }
  const std::string& workers() const { return server_->worker_addresses().at(0); }
  std::shared_ptr<grpc::ChannelCredentials> Of(Role role, const char* name) const {
    return CredentialsOf(certificates_, certificates_.Of({role, name}));
  }
  // The build, which every caller that is let in may ask for.
  static grpc::Status Ask(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& as) {
    JobClient client(address, as);
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    context.set_wait_for_ready(false);
    v1::ServerInfo info;
    return client.stub().GetServerInfo(&context, {}, &info);
  }

  platform::TemporaryFolder folder_;
  const tls::Certificates certificates_;
  std::unique_ptr<Daemon> server_;
};

TEST_F(TwoDoorsTest, AJobRunsBetweenUsersAndWorkers) {
  SimulatedWorker worker("w", workers(), {.credentials = Of(Role::kWorker, "w")});
  JobClient alice(users(), Of(Role::kUser, "alice"));
  const v1::Job job = alice.Ended("hers", 1);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.message();
}

TEST_F(TwoDoorsTest, EachLetsInItsOwnRolesAlone) {
  EXPECT_TRUE(Ask(users(), Of(Role::kUser, "alice")).ok());
  EXPECT_TRUE(Ask(users(), Of(Role::kAdmin, "root")).ok());
  EXPECT_TRUE(Ask(workers(), Of(Role::kWorker, "w")).ok());
  EXPECT_EQ(Ask(users(), Of(Role::kWorker, "w")).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Ask(workers(), Of(Role::kUser, "alice")).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Ask(workers(), Of(Role::kAdmin, "root")).error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace tandem::controller
