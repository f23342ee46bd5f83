// SPDX-License-Identifier: Apache-2.0
#include "tls/revoked_list.h"

#include <gmock/gmock.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "tests/tls/certificates.h"
#include "tls/certificate.h"

namespace tandem::tls {
namespace {

using ::testing::HasSubstr;

const Identity kBob{Role::kUser, "bob"};

TEST(RevokedListTest, AnIdentityStandsForAllOfItsCertificates) {
  const absl::StatusOr<RevokedList> list =
      RevokedList::Parse("# left in May\n\n  user/bob  # his laptop too\nworker/gpu-*\n", "revoked");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_TRUE(list->Has(kBob, "any"));
  EXPECT_TRUE(list->Has({Role::kWorker, "gpu-*"}, "any"));
  EXPECT_FALSE(list->Has({Role::kAdmin, "bob"}, "any"));
  EXPECT_FALSE(list->Has({Role::kUser, "bobby"}, "any"));
}

TEST(RevokedListTest, WhoWasTakenOutIsKnown) {
  const std::string fingerprint(64, 'a');
  const RevokedList before = *RevokedList::Parse("user/bob\nuser/ada\n" + fingerprint, "revoked");
  const RevokedList after = *RevokedList::Parse("user/ada\nuser/eve", "revoked");
  EXPECT_THAT(before.NotIn(after), ::testing::ElementsAre("user/bob", fingerprint));
  EXPECT_THAT(before.NotIn(before), ::testing::IsEmpty());
}

TEST(RevokedListTest, AFingerprintStandsForOneCertificateHoweverItIsWritten) {
  const Certificates certificates;
  const std::string lost = DescribePem(certificates.Of(kBob).certificate)->fingerprint;
  const std::string kept = DescribePem(certificates.Of(kBob).certificate)->fingerprint;
  std::vector<std::string> bytes;
  for (size_t i = 0; i < lost.size(); i += 2) {
    bytes.push_back(absl::AsciiStrToUpper(lost.substr(i, 2)));
  }
  const std::string colons = absl::StrJoin(bytes, ":");
  for (const std::string& line :
       {lost, colons, "sha256 Fingerprint=" + colons, "SHA256 Fingerprint=" + colons}) {
    const absl::StatusOr<RevokedList> list = RevokedList::Parse(line, "revoked");
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_TRUE(list->Has(kBob, lost)) << line;
    EXPECT_FALSE(list->Has(kBob, kept)) << line;
  }
}

TEST(RevokedListTest, ALineThatIsNeitherIsNamed) {
  for (const char* line : {"bob", "user/", "user/a b", "local", "ab:cd", "spiffe://tandem.local/user/bob"}) {
    EXPECT_THAT(
        std::string(RevokedList::Parse(std::string("user/ada\n") + line, "file").status().message()),
        HasSubstr("file:2: it is neither user/NAME, worker/ID or admin/NAME nor the SHA-256 fingerprint"));
  }
}

}  // namespace
}  // namespace tandem::tls
