// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

struct x509_st;

namespace tandem::tls {

// The SHA-256 of a certificate, 64 lower-case hex digits, and those of its twins. An ECDSA signature (r, s)
// is valid as (r, n - s) too, n being the order of the curve: whoever has a certificate can write it in
// another way that its authority seems to have signed. A list that names one of them means all of them.
//
// Nothing else of a certificate can be rewritten: OpenSSL encodes what is around the signed part anew before
// it takes the digest, and RSA and EdDSA signatures have one valid form. The curve is that of the authority's
// key, which the certificate does not hold: there is a twin for each curve of OpenSSL that the signature
// fits.
//
// Its own stands first. Shared, since each call has a copy.
using Fingerprints = std::shared_ptr<const std::vector<std::string>>;

// `certificate` stays the caller's.
Fingerprints FingerprintsOf(x509_st* certificate);

}  // namespace tandem::tls
