// SPDX-License-Identifier: Apache-2.0
#include "config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tandem::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Problems(const ConfigFile& file) {
  std::vector<std::string> out;
  for (const Problem& problem : file.problems) {
    out.push_back(problem.In("f.yaml"));
  }
  return out;
}

TEST(ConfigFileTest, SettingIsItsValuesText) {
  const ConfigFile file = ReadConfigText(R"(# a comment
state: /var/lib/tandem
metrics-listen: off
id: "007"
slots: 010
listen: [127.0.0.1:7471, "unix:/run/tandem/socket"]
data-address:
  - 10.0.0.1
)");
  EXPECT_THAT(Problems(file), IsEmpty());
  std::vector<std::pair<std::string, std::vector<std::string>>> settings;
  for (const Setting& setting : file.settings) {
    settings.emplace_back(setting.key, setting.values);
  }
  using Values = std::vector<std::string>;
  EXPECT_THAT(settings, ElementsAre(std::pair("state", Values{"/var/lib/tandem"}),
                                    std::pair("metrics-listen", Values{"off"}),
                                    std::pair("id", Values{"007"}), std::pair("slots", Values{"010"}),
                                    std::pair("listen", Values{"127.0.0.1:7471", "unix:/run/tandem/socket"}),
                                    std::pair("data-address", Values{"10.0.0.1"})));
  EXPECT_EQ(file.settings[1].line, 3);
  EXPECT_EQ(file.settings[1].column, 1);
  EXPECT_FALSE(file.settings[1].list);
  EXPECT_TRUE(file.settings[5].list);
}

TEST(ConfigFileTest, ProblemsAreReportedWithPlaces) {
  const ConfigFile file = ReadConfigText(R"(state: a
slots:
listen: []
id: {a: b}
  # still a comment
state: b
trainer: &x p
controller: *x
deep: [[a]]
good: g
)");
  EXPECT_THAT(Problems(file),
              ElementsAre("f.yaml:2:1: slots: it has no value; omit the line to get the default",
                          "f.yaml:3:1: listen: the list is empty; omit the line to get the default",
                          HasSubstr("f.yaml:4:1: id: a value is a text, or a list of texts"),
                          "f.yaml:6:1: state: it is given twice, first on line 1",
                          HasSubstr("f.yaml:7:1: trainer: a value is a text"),
                          HasSubstr("f.yaml:8:1: controller: a value is a text"),
                          HasSubstr("f.yaml:9:1: deep: a value is a text")));
  ASSERT_EQ(file.settings.size(), 2U);
  EXPECT_EQ(file.settings[0].key, "state");
  EXPECT_EQ(file.settings[1].key, "good");
}

TEST(ConfigFileTest, AFileOfCommentsSetsNothing) {
  const ConfigFile file = ReadConfigText("# slots: 4\n\n  # listen: 0.0.0.0:7471\r\n");
  EXPECT_THAT(Problems(file), IsEmpty());
  EXPECT_TRUE(file.settings.empty());
}

TEST(ConfigFileTest, WhatIsNoConfigFileIsOneProblem) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "f.yaml: the text is empty; write a config file in YAML or JSON"},
      {"- a\n- b\n", "f.yaml:1:1: lines of the form `flag: value` are expected"},
      {"just words", "f.yaml:1:1: lines of the form `flag: value` are expected"},
      {"a: b\n---\nc: d\n", "a second document starts; put one config file in a file"},
      {"a: [b\n", "f.yaml:2:1: not YAML: "},
      {"a: \x01\n", "f.yaml:1:4: the control character 0x01; remove it"}};
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(Problems(ReadConfigText(text)), ElementsAre(HasSubstr(problem))) << text;
  }
}

}  // namespace
}  // namespace tandem::config
