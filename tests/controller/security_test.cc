// SPDX-License-Identifier: Apache-2.0
// Who may do what, over real sockets and real TLS.
#include <gmock/gmock.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/generic/generic_stub.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "controller/rpc/access.h"
#include "proto/table_digest.h"
#include "tests/controller/secure_service.h"
#include "tests/controller/simulated_worker.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;
using tls::Role;

using Allowed = std::set<Who>;
const Allowed kUsers = {kOwner, kOtherUser, kAdmin};
const Allowed kOwners = {kOwner, kAdmin};
const Allowed kWorkers = {kWorker};

// What the services promise, written down apart from the rules of access.cc. A method that is not here fails
// the test.
const std::map<std::string, Allowed>& Promised() {
  static const auto& promised = *new std::map<std::string, Allowed>{
      {"tandem.v1.Jobs.Submit", kUsers},
      {"tandem.v1.Jobs.Validate", kUsers},
      {"tandem.v1.Jobs.GetJob", kUsers},
      {"tandem.v1.Jobs.ListJobs", kUsers},
      {"tandem.v1.Jobs.ListWorkers", kUsers},
      {"tandem.v1.Jobs.ListEvents", kUsers},
      {"tandem.v1.Jobs.Cancel", kOwners},
      {"tandem.v1.Jobs.Checkpoint", kOwners},
      {"tandem.v1.Jobs.Watch", kUsers},
      {"tandem.v1.Jobs.ListReports", kUsers},
      {"tandem.v1.Jobs.Profile", kOwners},
      {"tandem.v1.Jobs.ReadLog", kOwners},
      {"tandem.v1.Jobs.GetServerInfo", {kOwner, kOtherUser, kAdmin, kWorker}},
      {"tandem.v1.Jobs.SignIn", kUsers},
      {"tandem.v1.Workers.Session", kWorkers},
      {"tandem.v1.Workers.Reports", kWorkers},
      {"tandem.v1.Workers.Upload", kWorkers},
  };
  return promised;
}

class SecurityTest : public SecureServiceTest {
 protected:
  // The status of any method, with a request of these bytes; OK as soon as a response has come.
  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& request) {
    grpc::GenericStub stub(channel);
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    context.set_wait_for_ready(false);
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    const auto call = stub.PrepareCall(&context, method, &queue);
    call->StartCall(nullptr);
    grpc::Status status;
    if (await()) {
      const grpc::Slice slice(request);
      call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
      await();
    }
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    if (await()) {
      context.TryCancel();
      call->Finish(&status, nullptr);
      await();
      status = grpc::Status::OK;
    } else {
      call->Finish(&status, nullptr);
      await();
    }
    queue.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue.Next(&tag, &ok)) {
    }
    return status;
  }

  // The methods of both services. A service without rules refuses every call.
  static std::vector<const google::protobuf::MethodDescriptor*> Methods() {
    std::vector<const google::protobuf::MethodDescriptor*> out;
    for (const char* service : {"tandem.v1.Jobs", "tandem.v1.Workers"}) {
      const auto* found = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
      for (int i = 0; i < found->method_count(); ++i) {
        out.push_back(found->method(i));
      }
    }
    return out;
  }

  // A request that names a job where its type can, as bytes.
  static std::string RequestFor(const google::protobuf::Descriptor* type, const std::string& job) {
    google::protobuf::DynamicMessageFactory factory;
    const std::unique_ptr<google::protobuf::Message> message(factory.GetPrototype(type)->New());
    if (const google::protobuf::FieldDescriptor* field = type->FindFieldByName("job")) {
      message->GetReflection()->SetString(message.get(), field, job);
    }
    return message->SerializeAsString();
  }
};

TEST_F(SecurityTest, EveryMethodServesExactlyThePromisedCallers) {
  const auto methods = Methods();
  EXPECT_EQ(methods.size(), Promised().size());
  JobClient alice(address(), Credentials(kOwner));
  int number = 0;
  for (int who = 0; who < kNumWho; ++who) {
    JobClient caller(address(), Credentials(static_cast<Who>(who)));
    for (const google::protobuf::MethodDescriptor* method : methods) {
      const std::string name = method->full_name();
      SCOPED_TRACE(name + " by " + kWhoNames.at(static_cast<size_t>(who)));
      const auto promised = Promised().find(name);
      ASSERT_NE(promised, Promised().end()) << "say in this test who may call it, and in access.cc";
      ASSERT_NE(RuleOf(name), nullptr);
      v1::Job job;
      ASSERT_TRUE(alice.Submit(JobClient::SpecOf("job-" + std::to_string(++number), 1), "", job).ok());
      EXPECT_EQ(job.owner(), "alice");
      const grpc::Status status =
          Call(caller.channel(), "/" + method->service()->full_name() + "/" + method->name(),
               RequestFor(method->input_type(), job.id()));
      const bool refused = status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
                           status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
      if (promised->second.contains(static_cast<Who>(who))) {
        EXPECT_FALSE(refused) << status.error_message();
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
      } else {
        EXPECT_EQ(status.error_code(),
                  who < kWorker ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::PERMISSION_DENIED)
            << status.error_message();
        ASSERT_TRUE(alice.Get(job.id(), job).ok());
        EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED) << "nothing has happened";
      }
    }
  }
}

TEST(OwnerTest, RolesOfOneNameAreDifferentOwners) {
  EXPECT_EQ(Access::OwnerOf({tls::Role::kUser, "alice"}), "alice");
  EXPECT_EQ(Access::OwnerOf({tls::Role::kAdmin, "alice"}), "admin/alice");
  EXPECT_EQ(Access::OwnerOf({tls::Role::kUser, "local"}), "user/local");
  EXPECT_EQ(Access::OwnerOf({tls::Role::kLocal, "local"}), "local");
}

TEST_F(SecurityTest, ARefusedCallerLearnsWhy) {
  JobClient worker(address(), Credentials(kWorker));
  v1::Job job;
  EXPECT_THAT(worker.Get("none", job).error_message(),
              HasSubstr("worker/w may not call Jobs.GetJob; allowed: users, admins"));
  JobClient(address(), Credentials(kOwner)).Submitted("hers", 1);
  EXPECT_THAT(JobClient(address(), Credentials(kOtherUser))
                  .Call(&v1::Jobs::Stub::Cancel, JobClient::Of<v1::CancelRequest>("hers"), job)
                  .error_message(),
              HasSubstr("is alice's, and user/bob may not call Jobs.Cancel for it; allowed: alice"));
}

TEST_F(SecurityTest, ARequestIdIsItsOwners) {
  JobClient alice(address(), Credentials(kOwner));
  JobClient bob(address(), Credentials(kOtherUser));
  v1::Job hers;
  v1::Job his;
  v1::Job again;
  ASSERT_TRUE(alice.Submit(JobClient::SpecOf("hers", 1), "r-1", hers).ok());
  ASSERT_TRUE(bob.Submit(JobClient::SpecOf("his", 1), "r-1", his).ok());
  EXPECT_NE(his.id(), hers.id());
  EXPECT_EQ(his.owner(), "bob");
  ASSERT_TRUE(alice.Submit(JobClient::SpecOf("hers", 1), "r-1", again).ok());
  EXPECT_EQ(again.id(), hers.id());
}

TEST_F(SecurityTest, CertificatesDecideWhichIdsAWorkerMayHave) {
  SimulatedWorker impostor("other", address(), {.mute = true, .credentials = Credentials(kWorker)});
  JobClient::Until([&] { return !impostor.refused().empty(); });
  EXPECT_THAT(impostor.refused(), HasSubstr("WorkerIdDenied"));
  const auto pool = CredentialsOf(*certificates_, certificates_->Of({Role::kWorker, "pool-*"}));
  SimulatedWorker first("pool-1", address(), {.credentials = pool});
  SimulatedWorker named("w", address(), {.credentials = Credentials(kWorker)});
  JobClient alice(address(), Credentials(kOwner));
  const v1::Job job = alice.Ended("both", 2);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.message();
}

TEST_F(SecurityTest, WorkerReportsOnlyItsOwnJobs) {
  SimulatedWorker worker("w", address(), {.credentials = Credentials(kWorker)});
  JobClient alice(address(), Credentials(kOwner));
  const v1::Job job = alice.Ended("hers", 1);
  v1::ReportBatch batch;
  batch.mutable_id()->set_job_id(job.id());
  batch.mutable_id()->set_attempt(1);
  batch.add_reports()->set_step(1);
  batch.set_seq(1);
  const auto report_as = [&](const char* name) {
    const auto stub = v1::Workers::NewStub(grpc::CreateChannel(
        address(), CredentialsOf(*certificates_, certificates_->Of({Role::kWorker, name}))));
    grpc::ClientContext context;
    JobClient::SetDeadline(context);
    const auto stream = stub->Reports(&context);
    stream->Write(batch);
    v1::ReportAck ack;
    const bool taken = stream->Read(&ack);
    if (taken) {
      context.TryCancel();
    }
    const grpc::Status status = stream->Finish();
    return taken ? grpc::Status::OK : status;
  };
  EXPECT_TRUE(report_as("w").ok());
  const grpc::Status refused = report_as("x");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("worker/x may not report for attempt 1 of job hers"));
  // Nor what would be shown with the norms of others, or fill the history.
  batch.mutable_table()->add_parameters()->set_name("false");
  batch.mutable_table()->set_digest("of another job's table");
  EXPECT_THAT(report_as("w").error_message(), HasSubstr(", and not of another job's table"));
  batch.mutable_table()->set_digest(proto::DigestOf(batch.table()));
  EXPECT_TRUE(report_as("w").ok());
  batch.clear_table();
  batch.mutable_reports(0)->set_attempt(7);
  EXPECT_THAT(report_as("w").error_message(), HasSubstr("is of attempt 7, and its batch of attempt 1"));
  batch.mutable_reports(0)->set_attempt(1);
  batch.mutable_reports(0)->set_step(int64_t{1} << 40);
  EXPECT_THAT(report_as("w").error_message(), HasSubstr("has no step 1099511627776; its steps are 0 to "));
  batch.mutable_reports(0)->set_step(2);
  (*batch.mutable_reports(0)->mutable_scalars())[std::string(129, 's')] = 1;
  EXPECT_THAT(report_as("w").error_message(), HasSubstr("a scalar whose name has 129 bytes; allowed: 128"));
  batch.mutable_reports(0)->clear_scalars();
  batch.mutable_id()->set_job_id(std::string(65, 'a'));
  EXPECT_THAT(report_as("w").error_message(), HasSubstr("at most 64 bytes, and this one 65"));
}

TEST_F(SecurityTest, ClientRefusesAnUnexpectedController) {
  // One of another authority, and one by another name.
  const tls::Credential alice = certificates_->Of({tls::Role::kUser, "alice"});
  const auto of_strangers = CredentialsOf(strangers_, alice);
  v1::Job job;
  const auto request = JobClient::Of<v1::GetJobRequest>("none");
  EXPECT_EQ(JobClient(address(), of_strangers)
                .Call(&v1::Jobs::Stub::GetJob, request, job, /*waits=*/false)
                .error_code(),
            grpc::StatusCode::UNAVAILABLE);
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("elsewhere.example");
  const auto stub = v1::Jobs::NewStub(
      grpc::CreateCustomChannel(address(), CredentialsOf(*certificates_, alice), arguments));
  grpc::ClientContext context;
  JobClient::SetDeadline(context);
  context.set_wait_for_ready(false);
  EXPECT_EQ(stub->GetJob(&context, request, &job).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(SecurityTest, NewFilesAreTakenAndEndNoStream) {
  JobClient alice(address(), Credentials(kOwner));
  v1::Job job = alice.Submitted("watched", 1);
  grpc::ClientContext context;
  JobClient::SetDeadline(context, 120);
  auto request = JobClient::Of<v1::WatchRequest>("watched");
  const auto stream = alice.stub().Watch(&context, request);
  const tls::Certificates next;
  const tls::Credential carol = next.Of({Role::kUser, "carol"});
  const auto status_of = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    absl::SleepFor(absl::Milliseconds(20));  // below the limit of calls a second
    v1::Job found;
    return JobClient(address(), credentials)
        .Call(&v1::Jobs::Stub::GetJob, JobClient::Of<v1::GetJobRequest>("watched"), found, /*waits=*/false);
  };
  const auto carol_may = [&] { return status_of(CredentialsOf(*certificates_, carol)).ok(); };
  EXPECT_FALSE(carol_may());
  certificates_->Files("controller", certificates_->OfServer());
  certificates_->Write("ca.crt", certificates_->authority().certificate + next.authority().certificate, 0644);
  JobClient::Until([&] {  // new connections all the while
    const grpc::Status status = status_of(Credentials(kAdmin));
    EXPECT_TRUE(status.ok()) << status.error_message();
    return carol_may();
  });
  alice.Ask(&v1::Jobs::Stub::Cancel, JobClient::Of<v1::CancelRequest>("watched"));
  v1::WatchResponse response;
  while (!response.has_changed()) {
    ASSERT_TRUE(stream->Read(&response)) << "the stream has ended";
  }
  context.TryCancel();
  stream->Finish();
}

}  // namespace
}  // namespace tandem::controller
