// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace tandem::tls {

// Owning pointers to OpenSSL's objects, and functions on them.
template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioHandle = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using KeyHandle = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using CertificateHandle = std::unique_ptr<X509, Freer<X509_free>>;
using NameHandle = std::unique_ptr<X509_NAME, Freer<X509_NAME_free>>;
using ExtensionHandle = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;
using NamesHandle = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;
using ContextHandle = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;

// Makes `text` readable by OpenSSL. `text` must outlive the handle.
inline BioHandle BioOf(const std::string& text) {
  return BioHandle(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The first certificate, or private key, in a PEM text; null if there is none. KeyOf returns null for an
// encrypted key too: it never asks for a password, since a daemon has no terminal.
inline CertificateHandle CertificateOf(const std::string& pem) {
  return CertificateHandle(PEM_read_bio_X509(BioOf(pem).get(), nullptr, nullptr, nullptr));
}
inline KeyHandle KeyOf(const std::string& pem) {
  return KeyHandle(PEM_read_bio_PrivateKey(
      BioOf(pem).get(), nullptr, [](char*, int, int, void*) { return 0; }, nullptr));
}

// The text that OpenSSL has written to `bio`, a BIO in memory.
inline std::string TextOf(BIO* bio) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio, &text);
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : "";
}

}  // namespace tandem::tls
