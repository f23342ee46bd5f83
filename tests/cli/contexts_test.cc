// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/contexts.h"

#include <gmock/gmock.h>

#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

TEST(ContextsTest, ClustersAreReadWithTheirFilesBesideTheConfig) {
  const absl::StatusOr<Contexts> contexts = ReadContexts(
      "current-context: lab\n"
      "contexts:\n"
      "  lab: {address: \"ctl:7471\", tls-ca: ca.crt, tls-cert: ../alice.crt, tls-key: /keys/alice.key}\n"
      "  here: {address: \"unix:/run/tandem\"}\n",
      "/c/config.yaml", "/c");
  ASSERT_TRUE(contexts.ok()) << contexts.status();
  EXPECT_EQ(contexts->current, "lab");
  const NamedCluster& lab = contexts->clusters.at("lab");
  EXPECT_EQ(lab.address, "ctl:7471");
  EXPECT_EQ(lab.tls,
            (tls::TlsFiles{.ca = "/c/ca.crt", .certificate = "/alice.crt", .key = "/keys/alice.key"}));
  EXPECT_FALSE(contexts->clusters.at("here").tls.given());
}

TEST(ContextsTest, EveryMistakeIsNamedWithItsLine) {
  const absl::StatusOr<Contexts> contexts = ReadContexts(
      "current: lab\n"
      "contexts:\n"
      "  lab:\n"
      "    addres: \"ctl:7471\"\n"
      "  other: {address: nowhere}\n",
      "config.yaml", "/c");
  const std::string why(contexts.status().message());
  EXPECT_THAT(why, HasSubstr("config.yaml:1:1: there is no current; allowed: current-context, contexts"));
  EXPECT_THAT(why, HasSubstr("config.yaml:4:5: there is no addres; allowed: address, tls-ca"));
  EXPECT_THAT(why, HasSubstr("config.yaml:5:3: other.address: \"nowhere\" is not an address"));
  EXPECT_THAT(std::string(ReadContexts("current-context: lab\n", "c.yaml", "/").status().message()),
              HasSubstr("current-context: lab is not among the contexts"));
  EXPECT_THAT(std::string(ReadContexts("[", "c.yaml", "/").status().message()), HasSubstr("not YAML"));
}

// Which controller a command talks to, and as whom.
class ResolveTest : public CommandTest {
 protected:
  ResolveTest() {
    EXPECT_EQ(Tandem({"certs", "init", "--dir", folder_ + "/certs", "--user", "alice", "--user", "bob"}), kOk)
        << console_.err;
    std::filesystem::create_directories(folder_ + "/.config/tandem");
    File(".config/tandem/config.yaml",
         "current-context: lab\n"
         "contexts:\n"
         "  lab: {address: \"ctl:7471\", tls-ca: " +
             folder_ + "/certs/ca.crt, tls-cert: " + folder_ + "/certs/user-alice.crt, tls-key: " + folder_ +
             "/certs/user-alice.key}\n"
             "  other: {address: \"other:7471\"}\n");
    environment_.tandem_addr.clear();
  }

  std::string Subject(const absl::StatusOr<Address>& address) {
    return !address.ok()             ? std::string(address.status().message())
           : address->tls == nullptr ? "none"
                                     : address->tls->own.subject;
  }
};

TEST_F(ResolveTest, TheFlagWinsOverTheVariableAndThatOverTheContext) {
  absl::StatusOr<Address> address = ResolveAddress({}, environment_);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->target, "ctl:7471");
  EXPECT_EQ(address->source, Address::Source::kContext);
  EXPECT_EQ(Subject(address), "CN=user/alice");

  environment_.tandem_context = "other";
  EXPECT_EQ(ResolveAddress({}, environment_)->target, "other:7471");
  EXPECT_EQ(Subject(ResolveAddress({}, environment_)), "none");
  EXPECT_EQ(ResolveAddress({.context = "lab"}, environment_)->target, "ctl:7471");

  environment_.tandem_context.clear();
  environment_.tandem_tls_cert = folder_ + "/certs/user-bob.crt";
  environment_.tandem_tls_key = folder_ + "/certs/user-bob.key";
  EXPECT_EQ(Subject(ResolveAddress({}, environment_)), "CN=user/bob");
  EXPECT_EQ(Subject(ResolveAddress({.tls = {.certificate = folder_ + "/certs/user-alice.crt",
                                            .key = folder_ + "/certs/user-alice.key"}},
                                   environment_)),
            "CN=user/alice");
}

TEST_F(ResolveTest, AnAddressOfOnesOwnTakesNothingFromTheCurrentContext) {
  EXPECT_EQ(Subject(ResolveAddress({.addr = "a:1"}, environment_)), "none");
  EXPECT_EQ(Subject(ResolveAddress({.addr = "a:1", .context = "lab"}, environment_)), "CN=user/alice");
  EXPECT_EQ(Subject(ResolveAddress({.addr = "unix:/x", .context = "lab"}, environment_)), "none");
}

TEST_F(ResolveTest, WhatIsWrongIsSaidBeforeAnythingIsDialled) {
  EXPECT_EQ(Tandem({"--context", "labb", "get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("--context: labb is not in " + folder_ +
                                      "/.config/tandem/config.yaml; allowed: lab, other"));
  EXPECT_EQ(Tandem({"get", "jobs", "--tls-key", folder_ + "/certs/user-bob.key"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("user-bob.key is not the key of "));
  EXPECT_EQ(Tandem({"--addr", "a:1", "--tls-ca", "ca.crt", "get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("TLS takes --tls-ca, --tls-cert and --tls-key together"));
}

TEST_F(ResolveTest, AnOptionBeforeTheCommandIsNotTakenForIt) {
  EXPECT_EQ(Tandem({"--context", "lab", "gett"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("there is no command \"gett\""));
}

}  // namespace
}  // namespace tandem::cli
