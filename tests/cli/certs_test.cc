// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "absl/time/clock.h"
#include "platform/files.h"
#include "tests/cli/command_fixture.h"
#include "tls/identity.h"
#include "tls/server_tls.h"
#include "tls/tls_files.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

class CertsTest : public CommandTest {
 protected:
  int Init(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"certs", "init", "--dir", dir_};
    words.insert(words.end(), more.begin(), more.end());
    return Tandem(words);
  }
  mode_t ModeOf(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(stat((dir_ + "/" + name).c_str(), &info), 0) << name;
    return info.st_mode & 07777;
  }
  tls::TlsFiles Files(const std::string& name) const {
    return {
        .ca = dir_ + "/ca.crt", .certificate = dir_ + "/" + name + ".crt", .key = dir_ + "/" + name + ".key"};
  }
  std::vector<std::string> NamesIn(const std::string& name) const {
    const absl::StatusOr<tls::TlsTexts> texts = tls::ReadValidTlsFiles(Files(name), absl::Now());
    EXPECT_TRUE(texts.ok()) << texts.status();
    std::vector<std::string> out = texts->own.uris;
    out.insert(out.end(), texts->own.hosts.begin(), texts->own.hosts.end());
    return out;
  }

  const std::string dir_ = folder_ + "/certs";
};

TEST_F(CertsTest, InitMakesFilesWithTheirModes) {
  const mode_t former = umask(0);  // that of the files does not depend on it
  ASSERT_EQ(Init({"--host", "ctl.example", "--host", "10.0.0.1", "--host", "::1", "--worker", "gpu-*",
                  "--user", "alice", "--admin", "root"}),
            kOk)
      << console_.err;
  umask(former);
  EXPECT_THAT(console_.err, HasSubstr("keep " + dir_ + "/ca.key off every other machine"));
  EXPECT_THAT(NamesIn("controller"), ::testing::ElementsAre("ctl.example", "10.0.0.1", "::1"));
  EXPECT_THAT(NamesIn("worker-gpu-_"), ::testing::ElementsAre("spiffe://tandem.local/worker/gpu-*"));
  EXPECT_THAT(NamesIn("user-alice"), ::testing::ElementsAre("spiffe://tandem.local/user/alice"));
  EXPECT_THAT(NamesIn("admin-root"), ::testing::ElementsAre("spiffe://tandem.local/admin/root"));
  for (const char* name : {"ca", "controller", "worker-gpu-_", "user-alice", "admin-root"}) {
    EXPECT_EQ(ModeOf(std::string(name) + ".key"), 0600U) << name;
    EXPECT_EQ(ModeOf(std::string(name) + ".crt"), 0644U) << name;
  }
  EXPECT_EQ(ModeOf(""), 0700U);
  EXPECT_TRUE(tls::ServerTls::Open(Files("controller"), tls::kDefaultDomain).ok());
}

TEST_F(CertsTest, NothingIsOverwritten) {
  ASSERT_EQ(Init({"--user", "alice"}), kOk);
  const std::string key = *platform::SystemFiles().Read(dir_ + "/user-alice.key");
  EXPECT_EQ(Init({"--user", "bob"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("ca.crt is there already, and nothing is overwritten"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/user-bob.key")) << "nothing is half done";
  EXPECT_THAT(console_.err, HasSubstr("`tandem certs issue` makes more certificates"));
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--user", "alice"}), kFailed);
  EXPECT_THAT(console_.err,
              HasSubstr("user-alice.crt is there already, and nothing is overwritten; give --renew "
                        "to replace it, or another name"));
  EXPECT_EQ(*platform::SystemFiles().Read(dir_ + "/user-alice.key"), key);
}

TEST_F(CertsTest, FullDiskDoesNotBlockARetry) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto former = std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit fails, as on a full disk
  for (const rlim_t room : {10, 300}) {               // not enough for a key; for a key, but no certificate
    const rlimit full = {.rlim_cur = room, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    EXPECT_EQ(Init({"--host", "ctl.example"}), kFailed);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(console_.err, HasSubstr(room < 300 ? "/ca.key: " : "/ca.crt: "));
    EXPECT_TRUE(std::filesystem::is_empty(dir_));
  }
  std::signal(SIGXFSZ, former);
  EXPECT_EQ(Init({"--host", "ctl.example"}), kOk) << console_.err;
}

TEST_F(CertsTest, RenewalKeepsAllNames) {
  ASSERT_EQ(Init({"--host", "ctl", "--host", "10.0.0.1"}), kOk) << console_.err;
  const std::string before = *platform::SystemFiles().Read(dir_ + "/controller.crt");
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--renew", "--host", "ctl"}), kUsage);
  EXPECT_THAT(console_.err,
              HasSubstr("controller.crt is for ctl, 10.0.0.1, and the new one would lack 10.0.0.1"));
  EXPECT_EQ(*platform::SystemFiles().Read(dir_ + "/controller.crt"), before);
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--renew", "--host", "10.0.0.1", "--host", "ctl",
                    "--host", "more"}),
            kOk)
      << console_.err;
  EXPECT_THAT(NamesIn("controller"), ::testing::ElementsAre("10.0.0.1", "ctl", "more"));
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--renew", "--user", "nobody"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("there is no " + dir_ + "/user-nobody.crt to renew; omit --renew"));
}

TEST_F(CertsTest, CertificatesAreOfTheirAuthoritysDomain) {
  ASSERT_EQ(Init({"--domain", "lab.example", "--user", "alice"}), kOk) << console_.err;
  for (const char* renew : {"--days=365", "--renew"}) {
    EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--user", "alice", renew}), kUsage);
    EXPECT_THAT(console_.err,
                HasSubstr("the authority is that of lab.example, not of tandem.local; give --domain "
                          "lab.example"));
  }
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--user", "bob", "--domain", "lab.example"}), kOk)
      << console_.err;
}

TEST_F(CertsTest, RepeatedNameIsRefusedFirst) {
  ASSERT_EQ(Init(), kOk) << console_.err;
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--user", "bob", "--user", "bob"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("user-bob.crt would be made twice"));
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--worker", "gpu*", "--worker", "gpu_"}), kUsage);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/user-bob.key"));
}

TEST_F(CertsTest, FurtherOnesAreIssuedAndRenewed) {
  ASSERT_EQ(Init(), kOk) << console_.err;
  ASSERT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--user", "bob", "--days", "1"}), kOk) << console_.err;
  EXPECT_EQ(console_.out, dir_ + "/user-bob.crt\n");
  const std::string before = *platform::SystemFiles().Read(dir_ + "/user-bob.crt");
  ASSERT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--user", "bob", "--renew"}), kOk) << console_.err;
  EXPECT_NE(*platform::SystemFiles().Read(dir_ + "/user-bob.crt"), before);
  EXPECT_THAT(NamesIn("user-bob"), ::testing::ElementsAre("spiffe://tandem.local/user/bob"));
  EXPECT_EQ(ModeOf("user-bob.key"), 0600U);
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--user", "carol", "--renew"}), kFailed)
      << "there is none to renew";
}

TEST_F(CertsTest, InvalidNamesAreRefusedAndNothingIsMade) {
  EXPECT_EQ(Init({"--user", "al ice"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("\"al ice\" cannot name a certificate; allowed: 1 to 64 letters"));
  EXPECT_EQ(Init({"--user", "a,DNS:evil"}), kUsage);
  EXPECT_EQ(Init({"--host", "a,URI:spiffe://tandem.local/admin/x"}), kUsage);
  EXPECT_EQ(Init({"--domain", "x/admin/root,URI:y"}), kUsage);
  EXPECT_EQ(Init({"--days", "0"}), kUsage);
  EXPECT_FALSE(std::filesystem::exists(dir_));
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_, "--user", "a"}), kFailed);
  EXPECT_EQ(Tandem({"certs", "issue", "--dir", dir_}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("say for whom"));
  EXPECT_EQ(Tandem({"certs", "init"}), kUsage);
  EXPECT_EQ(console_.err, "tandem: certs init: --dir is required; see `tandem certs init --help`\n");
  EXPECT_EQ(Tandem({"--addr", "a:1", "certs", "--context", "init", "issue"}), kUsage);
  EXPECT_EQ(console_.err, "tandem: certs issue: --dir is required; see `tandem certs issue --help`\n");
  EXPECT_EQ(Tandem({"certs"}), kUsage);
  EXPECT_THAT(
      console_.err,
      HasSubstr(
          "certs: its second word is missing or unknown; allowed: certs init, certs issue, certs show"));
}

TEST_F(CertsTest, ShowSaysForWhomAndHowLong) {
  ASSERT_EQ(Init({"--user", "alice"}), kOk);
  EXPECT_EQ(Tandem({"certs", "show", dir_ + "/user-alice.crt", dir_ + "/ca.crt"}), kOk) << console_.err;
  EXPECT_THAT(console_.out, HasSubstr("spiffe://tandem.local/user/alice"));
  EXPECT_THAT(console_.out, HasSubstr("CN=Tandem CA of tandem.local"));
  EXPECT_THAT(console_.out, HasSubstr("valid"));
  EXPECT_EQ(Tandem({"certs", "show", dir_ + "/user-alice.key"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("it holds no certificate"));
}

}  // namespace
}  // namespace tandem::cli
