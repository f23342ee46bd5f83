// The real daemon without file descriptors, without disk, and with files that are not its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "tests/controller/daemon_process.h"
#include "tests/controller/job_client.h"
#include "tests/controller/simulated_worker.h"
#include "tests/controller/temp_folder.h"

namespace tandem::controller {
namespace {

using ::testing::HasSubstr;

void SetLimit(const Daemon& daemon, __rlimit_resource resource, rlim_t value) {
  rlimit limit{};
  ASSERT_EQ(prlimit(daemon.pid(), resource, nullptr, &limit), 0);
  limit.rlim_cur = value;
  ASSERT_EQ(prlimit(daemon.pid(), resource, &limit, nullptr), 0);
}

// Seconds of processor time that it has used.
double CpuSeconds(const Daemon& daemon) {
  double nanoseconds = 0;
  double sum = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(daemon.pid()) + "/task")) {
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    sum += nanoseconds;
  }
  return sum / 1e9;
}

// Connections that say nothing.
class RawConnections {
 public:
  explicit RawConnections(const std::string& socket_path) {
    std::strcpy(name_.sun_path, socket_path.c_str());
  }
  ~RawConnections() { Close(); }

  void Open(int count) {
    for (int i = 0; i < count; ++i) {
      fds_.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(connect(fds_.back(), reinterpret_cast<const sockaddr*>(&name_), sizeof(name_)), 0);
    }
  }
  // How many the other side has closed.
  int NumClosed() {
    int closed = 0;
    for (const int fd : fds_) {
      char byte = 0;
      closed += recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0 ? 1 : 0;
    }
    return closed;
  }
  void Close() {
    for (const int fd : fds_) {
      close(fd);
    }
    fds_.clear();
  }

 private:
  sockaddr_un name_{.sun_family = AF_UNIX};
  std::vector<int> fds_;
};

TEST(DescriptorsTest, AFloodOfConnectionsIsTurnedAwayAndThoseThatWereThereGoOn) {
  TempFolder folder;
  Daemon daemon(folder.path(), "");
  SimulatedWorker worker("a", Daemon::Address(folder.path()), {.hold = true});
  JobClient before(Daemon::Address(folder.path()));
  v1::Job job;
  ASSERT_TRUE(before.Submit(JobClient::SpecOf("held", 1), "", job).ok());
  SetLimit(daemon, RLIMIT_NOFILE, 64);

  RawConnections flood(folder.path() + "/socket");
  flood.Open(300);
  JobClient::Until([&] { return flood.NumClosed() > 200; });
  EXPECT_TRUE(before.Submit(JobClient::SpecOf("meanwhile", 1), "", job).ok());
  worker.Release();
  ASSERT_TRUE(before.Follow("held", job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.message();
  const double cpu = CpuSeconds(daemon);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // while nothing happens
  EXPECT_LT(CpuSeconds(daemon) - cpu, 0.5) << "it does not spin";
  EXPECT_THAT(Daemon::Log(folder.path()), HasSubstr("connections are turned away"));
  EXPECT_THAT(Daemon::Log(folder.path()), HasSubstr("\"limit\":\"64\""));

  flood.Close();
  JobClient after(Daemon::Address(folder.path()));
  ASSERT_TRUE(after.Submit(JobClient::SpecOf("later", 1), "", job).ok()) << "it serves again";
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(DescriptorsTest, WithoutASingleOneItWaitsAndServesAgain) {
  TempFolder folder;
  Daemon daemon(folder.path(), "");
  JobClient before(Daemon::Address(folder.path()));
  v1::Job job;
  ASSERT_TRUE(before.Submit(JobClient::SpecOf("one", 1), "", job).ok());
  SetLimit(daemon, RLIMIT_NOFILE, 3);  // below what it has open: accept fails, also with the spare one
  RawConnections flood(folder.path() + "/socket");
  flood.Open(20);
  EXPECT_TRUE(before.Submit(JobClient::SpecOf("two", 1), "", job).ok());
  const double cpu = CpuSeconds(daemon);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(CpuSeconds(daemon) - cpu, 0.5) << "it does not spin";
  flood.Close();
  SetLimit(daemon, RLIMIT_NOFILE, 1024);
  JobClient after(Daemon::Address(folder.path()));
  EXPECT_TRUE(after.Submit(JobClient::SpecOf("three", 1), "", job).ok());
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(DiskTest, AStoreThatCannotBeWrittenEndsTheDaemonInOneLineAndLosesNothing) {
  TempFolder folder;
  std::vector<std::string> acknowledged;
  {
    Daemon daemon(folder.path(), "");
    JobClient client(Daemon::Address(folder.path()));
    v1::Job job;
    ASSERT_TRUE(client.Submit(JobClient::SpecOf("job-0", 1), "r0", job).ok());
    acknowledged.push_back(job.id());
    SetLimit(daemon, RLIMIT_FSIZE, 400'000);  // of each file, as a full disk
    grpc::Status status;
    for (int i = 1; status.ok() && i < 1000; ++i) {
      const std::string number = std::to_string(i);
      status = client.Submit(JobClient::SpecOf("job-" + number, 1), "r" + number, job);
      if (status.ok()) {
        acknowledged.push_back(job.id());
      }
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    const int end = daemon.Wait();
    EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 1) << end;
  }
  EXPECT_THAT(Daemon::Log(folder.path()), HasSubstr("the store failed and nothing more is decided"));
  EXPECT_THAT(Daemon::Log(folder.path()), HasSubstr("/state/controller.db"));

  Daemon daemon(folder.path(), "");
  JobClient client(Daemon::Address(folder.path()));
  EXPECT_GT(acknowledged.size(), 1U);
  for (size_t i = 0; i < acknowledged.size(); ++i) {
    v1::Job job;
    const std::string number = std::to_string(i);
    ASSERT_TRUE(client.Submit(JobClient::SpecOf("job-" + number, 1), "r" + number, job).ok());
    EXPECT_EQ(job.id(), acknowledged[i]) << "the same job, by its request id";
  }
}

}  // namespace
}  // namespace tandem::controller
