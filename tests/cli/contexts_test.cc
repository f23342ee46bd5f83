// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/contexts.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

TEST(ContextsTest, ClusterFilesLieBesideTheConfig) {
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
              HasSubstr("current-context: lab is not among the contexts; remove the line"));
  EXPECT_THAT(
      std::string(ReadContexts("current-context: lab\ncontexts: {a: {address: \"a:1\"}}\n", "c.yaml", "/")
                      .status()
                      .message()),
      HasSubstr("current-context: lab is not among the contexts; allowed: a"));
  EXPECT_THAT(std::string(ReadContexts("[", "c.yaml", "/").status().message()), HasSubstr("not YAML"));
}

TEST(ContextsTest, CommentsAloneNameNoCluster) {
  for (const char* text : {"", "\n", "# contexts:\n\n  # lab: {}\n"}) {
    const absl::StatusOr<Contexts> contexts = ReadContexts(text, "config.yaml", "/c");
    ASSERT_TRUE(contexts.ok()) << contexts.status();
    EXPECT_TRUE(contexts->clusters.empty());
    EXPECT_EQ(contexts->current, "");
  }
}

TEST(ContextsTest, AContextHasAName) {
  EXPECT_THAT(
      std::string(
          ReadContexts("contexts: {\"\": {address: \"ctl:1\"}}", "config.yaml", "/c").status().message()),
      HasSubstr("config.yaml:1:12: the name of a context must not be empty"));
}

TEST(ContextsTest, WhatIsWrittenIsReadAgain) {
  Contexts contexts{.file = "/c/config.yaml", .current = "lab"};
  contexts.clusters["lab"] = {.address = "ctl:7471",
                              .tls = {.ca = "/c/lab/ca.crt",
                                      .certificate = "/keys/alice's \"own\".crt",
                                      .key = "/keys/alice.key",
                                      .server_name = "no"}};
  contexts.clusters["yes"] = {.address = "unix:/run/tandem"};
  const std::string text = WriteContexts(contexts, "/c");
  EXPECT_THAT(text, HasSubstr("tls-ca: lab/ca.crt\n"));
  const absl::StatusOr<Contexts> again = ReadContexts(text, "/c/config.yaml", "/c");
  ASSERT_TRUE(again.ok()) << again.status() << text;
  EXPECT_EQ(again->current, "lab");
  EXPECT_EQ(again->clusters, contexts.clusters);
  EXPECT_TRUE(ReadContexts(WriteContexts({}, "/c"), "/c/config.yaml", "/c").ok());
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

TEST_F(ResolveTest, FlagBeatsVariableBeatsContext) {
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

TEST_F(ResolveTest, NamedContextBeatsVariables) {
  environment_.tandem_addr = "variable:1";
  environment_.tandem_tls_cert = folder_ + "/certs/user-bob.crt";
  environment_.tandem_tls_key = folder_ + "/certs/user-bob.key";
  EXPECT_EQ(ResolveAddress({.context = "lab"}, environment_)->target, "ctl:7471");
  EXPECT_EQ(Subject(ResolveAddress({.context = "lab"}, environment_)), "CN=user/alice");
  environment_.tandem_context = "lab";
  EXPECT_EQ(ResolveAddress({}, environment_)->target, "variable:1");
}

TEST_F(ResolveTest, ExplicitAddressIgnoresTheContext) {
  EXPECT_EQ(Subject(ResolveAddress({.addr = "a:1"}, environment_)), "none");
  EXPECT_EQ(Subject(ResolveAddress({.addr = "a:1", .context = "lab"}, environment_)), "CN=user/alice");
  EXPECT_EQ(Subject(ResolveAddress({.addr = "unix:/x", .context = "lab"}, environment_)), "none");
}

TEST_F(ResolveTest, ProblemsAreReportedBeforeAnythingIsDialled) {
  EXPECT_EQ(Tandem({"--context", "labb", "get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("--context: labb is not in " + folder_ +
                                      "/.config/tandem/config.yaml; allowed: lab, other"));
  EXPECT_EQ(Tandem({"get", "jobs", "--tls-key", folder_ + "/certs/user-bob.key"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("user-bob.key is not the key of "));
  EXPECT_EQ(Tandem({"--addr", "a:1", "--tls-ca", "ca.crt", "get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("TLS takes --tls-ca, --tls-cert and --tls-key together"));
}

TEST_F(ResolveTest, LocalAddressWithServerNameIsATunnel) {
  const tls::TlsFiles files = {.ca = folder_ + "/certs/ca.crt",
                               .certificate = folder_ + "/certs/user-bob.crt",
                               .key = folder_ + "/certs/user-bob.key"};
  absl::StatusOr<Address> address = ResolveAddress({.addr = "127.0.0.1:7471", .tls = files}, environment_);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_TRUE(address->is_here());
  environment_.tandem_tls_server_name = "tandem-controller";
  address = ResolveAddress({.addr = "127.0.0.1:7471", .tls = files}, environment_);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_FALSE(address->is_here());
}

TEST_F(ResolveTest, ContextsAreMadeChosenChangedAndForgotten) {
  std::filesystem::remove(folder_ + "/.config/tandem/config.yaml");
  const std::string certs = folder_ + "/certs/";
  EXPECT_EQ(Tandem({"context", "set", "lab", "--addr", "ctl:7471", "--tls-ca", certs + "ca.crt", "--tls-cert",
                    certs + "user-alice.crt", "--tls-key", certs + "user-alice.key"}),
            kOk)
      << console_.err;
  EXPECT_EQ(Tandem({"context", "set", "other", "--addr", "other:7471"}), kOk) << console_.err;
  EXPECT_EQ(ResolveAddress({}, environment_)->target, "ctl:7471") << "the first is the current one";
  EXPECT_EQ(Subject(ResolveAddress({}, environment_)), "CN=user/alice");
  EXPECT_EQ(Tandem({"context", "use", "other"}), kOk) << console_.err;
  EXPECT_EQ(ResolveAddress({}, environment_)->target, "other:7471");
  EXPECT_EQ(Tandem({"context", "set", "lab", "--addr", "ctl:7472"}), kOk) << console_.err;
  EXPECT_EQ(Tandem({"context", "list"}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("lab    ctl:7472"));
  EXPECT_THAT(console_.out, HasSubstr("user-alice.crt"));
  EXPECT_THAT(console_.out, HasSubstr("*        other  other:7471"));
  EXPECT_EQ(Tandem({"context", "list", "-o", "name"}), kOk);
  EXPECT_EQ(console_.out, "lab\nother\n");
  EXPECT_EQ(Tandem({"context", "remove", "other"}), kOk) << console_.err;
  EXPECT_EQ(ResolveAddress({}, environment_)->source, Address::Source::kDefault) << "there is no current one";
}

TEST_F(ResolveTest, MissingContextSaysHowToMakeOne) {
  std::filesystem::remove(folder_ + "/.config/tandem/config.yaml");
  constexpr char kRemedy[] = "; `tandem context set NAME --addr HOST:PORT` makes one";
  EXPECT_EQ(Tandem({"--context", "lab", "get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr(std::string("config.yaml, which is not there") + kRemedy));
  EXPECT_EQ(Tandem({"context", "use", "lab"}), kNotFound);
  EXPECT_THAT(console_.err, HasSubstr(std::string("there is no context lab") + kRemedy));
}

TEST_F(ResolveTest, ContextIsReadWhereTheMessageSays) {
  environment_.xdg_config_home = folder_ + "/xdg";
  environment_.tandem_context = "lab";
  EXPECT_EQ(Tandem({"get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("TANDEM_CONTEXT: lab is not in " + folder_ +
                                      "/xdg/tandem/config.yaml, which is not there; "));
  environment_.xdg_config_home = "relative";  // it would be another one in each folder
  EXPECT_EQ(ResolveAddress({}, environment_)->target, "ctl:7471") << "of the one in HOME";
  environment_.home.clear();
  EXPECT_EQ(Tandem({"get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("there is no folder for the config file: neither HOME nor "
                                      "XDG_CONFIG_HOME is set to an absolute path"));
}

TEST_F(ResolveTest, WrongTlsFileIsNamedAsGiven) {
  const tls::TlsFiles alice = {.ca = folder_ + "/certs/ca.crt",
                               .certificate = folder_ + "/certs/user-alice.crt",
                               .key = folder_ + "/certs/user-alice.key"};
  const std::string bobs_key = folder_ + "/certs/user-bob.key";
  environment_.tandem_addr = "a:1";
  environment_.tandem_tls_ca = alice.ca;
  environment_.tandem_tls_cert = alice.certificate;
  environment_.tandem_tls_key = bobs_key;
  EXPECT_EQ(Tandem({"get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("tandem: TANDEM_TLS_KEY: " + bobs_key + " is not the key of "));
  EXPECT_EQ(Tandem({"--tls-cert", folder_ + "/none", "get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("tandem: --tls-cert: open " + folder_ + "/none"));
  environment_.tandem_tls_ca = folder_ + "/none";
  EXPECT_EQ(Tandem({"get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("tandem: TANDEM_TLS_CA: open "));

  environment_.tandem_addr.clear();
  environment_.tandem_tls_ca.clear();
  environment_.tandem_tls_cert.clear();
  environment_.tandem_tls_key.clear();
  std::filesystem::remove(folder_ + "/certs/user-alice.key");
  EXPECT_EQ(Tandem({"get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("tandem: tls-key of the context lab: open " + alice.key));
}

TEST_F(ResolveTest, AContextThatCannotWorkIsNotSaved) {
  const auto before = LoadContexts(environment_);
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(Tandem({"context", "use", "labb"}), kNotFound);
  EXPECT_THAT(console_.err, HasSubstr("context use: there is no context labb; allowed: lab, other"));
  EXPECT_EQ(Tandem({"context", "remove", "labb"}), kNotFound);
  EXPECT_EQ(Tandem({"context", "set", "new"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("context set: new is new; give its --addr"));
  EXPECT_EQ(Tandem({"context", "set", "a b", "--addr", "a:1"}), kUsage);
  EXPECT_EQ(Tandem({"context", "set", "new", "--addr", "nowhere"}), kUsage);
  EXPECT_NE(Tandem({"context", "set", "new", "--addr", "a:1", "--tls-ca", folder_ + "/certs/ca.crt"}), kOk);
  EXPECT_EQ(Tandem({"context", "use", "lab", "--addr", "a:1"}), kUsage);
  EXPECT_EQ(Tandem({"context"}), kUsage);
  EXPECT_EQ(LoadContexts(environment_)->clusters, before->clusters);
  // A comment is somebody's, and would be lost.
  File(".config/tandem/config.yaml", "contexts:\n  lab: {address: \"ctl:7471\"}  # the old one\n");
  EXPECT_EQ(Tandem({"context", "set", "lab", "--addr", "a:1"}), kFailed);
  EXPECT_THAT(console_.err, HasSubstr("config.yaml:2: there is a comment, which would be lost"));
  EXPECT_EQ(ResolveAddress({.context = "lab"}, environment_)->target, "ctl:7471");
}

TEST_F(ResolveTest, ANumberSignInQuotesIsNoComment) {
  std::filesystem::remove(folder_ + "/.config/tandem/config.yaml");
  EXPECT_EQ(Tandem({"context", "set", "a", "--addr", "unix:/tmp/x #y"}), kOk) << console_.err;
  EXPECT_EQ(Tandem({"context", "set", "b", "--addr", "b:1"}), kOk) << console_.err;
  EXPECT_EQ(Tandem({"context", "use", "a"}), kOk) << console_.err;
}

TEST_F(ResolveTest, AnEmptyOptionIsRefusedByItsName) {
  // A variable that is not set, in quotes: a call without the option would reach another cluster.
  for (const auto& [words, name] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--addr", "", "get", "jobs"}, "--addr"},
           {{"--context", "", "get", "jobs"}, "--context"},
           {{"--tls-ca", "", "get", "jobs"}, "--tls-ca"},
           {{"cancel", ""}, "JOB"},
           {{"submit", "-f", ""}, "--file"},
           {{"submit", "-f", "job.yaml", "--request-id", ""}, "--request-id"},
           {{"submit", "-f", "job.yaml", "--name", ""}, "--name"},
           {{"plan", "-f", "job.yaml", "--compare", ""}, "--compare"},
           {{"up", "--trainer", ""}, "--trainer"},
           {{"certs", "init", "--dir", ""}, "--dir"}}) {
    EXPECT_EQ(Tandem(words), kUsage);
    EXPECT_THAT(console_.err, HasSubstr(name + ": its value is empty; give one, or omit it; see")) << name;
  }
}

TEST_F(ResolveTest, OptionBeforeTheCommandIsAllowed) {
  EXPECT_EQ(Tandem({"--context", "lab", "gett"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("there is no command \"gett\""));
  EXPECT_EQ(Tandem({"sumbit", "-f", "job.yaml"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("there is no command \"sumbit\""));
  EXPECT_EQ(Tandem({"-o", "json", "get", "jobs"}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("there is no option \"-o\" before a command"));
}

}  // namespace
}  // namespace tandem::cli
