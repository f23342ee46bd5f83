// SPDX-License-Identifier: Apache-2.0
#include "tls/revoked_list.h"

#include <gmock/gmock.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "tests/tls/certificates.h"
#include "tests/tls/twin.h"
#include "tls/certificate.h"

namespace tandem::tls {
namespace {

using ::testing::HasSubstr;

const Identity kBob{Role::kUser, "bob"};

TEST(RevokedListTest, AnIdentityStandsForAllOfItsCertificates) {
  const absl::StatusOr<RevokedList> list =
      RevokedList::Parse("# left in May\n\n  user/bob  # his laptop too\nworker/gpu-*\n", "revoked");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_TRUE(list->Has(kBob, nullptr));
  EXPECT_TRUE(list->Has({Role::kWorker, "gpu-*"}, nullptr));
  EXPECT_FALSE(list->Has({Role::kAdmin, "bob"}, nullptr));
  EXPECT_FALSE(list->Has({Role::kUser, "bobby"}, nullptr));
}

TEST(RevokedListTest, WhoWasTakenOutIsKnown) {
  const std::string fingerprint(64, 'a');
  const RevokedList before = *RevokedList::Parse("user/bob\nuser/ada\n" + fingerprint, "revoked");
  const RevokedList after = *RevokedList::Parse("user/ada\nuser/eve", "revoked");
  EXPECT_THAT(before.NotIn(after), ::testing::ElementsAre("user/bob", fingerprint));
  EXPECT_THAT(before.NotIn(before), ::testing::IsEmpty());
}

TEST(RevokedListTest, FingerprintMayBeWrittenAnyWay) {
  const Certificates certificates;
  const Fingerprints of_lost = DescribePem(certificates.Of(kBob).certificate)->fingerprints;
  const std::string lost = of_lost->front();
  const Fingerprints kept = DescribePem(certificates.Of(kBob).certificate)->fingerprints;
  std::vector<std::string> bytes;
  for (size_t i = 0; i < lost.size(); i += 2) {
    bytes.push_back(absl::AsciiStrToUpper(lost.substr(i, 2)));
  }
  const std::string colons = absl::StrJoin(bytes, ":");
  for (const std::string& line :
       {lost, colons, "sha256 Fingerprint=" + colons, "SHA256 Fingerprint=" + colons}) {
    const absl::StatusOr<RevokedList> list = RevokedList::Parse(line, "revoked");
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_TRUE(list->Has(kBob, of_lost)) << line;
    EXPECT_FALSE(list->Has(kBob, kept)) << line;
  }
}

TEST(RevokedListTest, AFingerprintStandsForTheTwinToo) {
  const Certificates certificates;
  const std::string authority = certificates.authority().certificate;
  for (int i = 0; i < 20; ++i) {  // signatures are random: s is below half of the order, or above it
    const std::string own = certificates.Of(kBob).certificate;
    const std::string twin = TwinOf(own, authority);
    EXPECT_EQ(TwinOf(twin, authority), own);
    const Fingerprints of_own = DescribePem(own)->fingerprints;
    const Fingerprints of_twin = DescribePem(twin)->fingerprints;
    ASSERT_NE(of_own->front(), of_twin->front());
    EXPECT_TRUE(RevokedList::Parse(of_own->front(), "revoked")->Has(kBob, of_twin));
    EXPECT_TRUE(RevokedList::Parse(of_twin->front(), "revoked")->Has(kBob, of_own));
    EXPECT_LT(of_own->size(), 20U) << "each call looks for each of them";
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
