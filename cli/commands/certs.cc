// SPDX-License-Identifier: Apache-2.0
// The commands `tandem certs ...`: certificates for a cluster that has no authority of its own.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/table.h"
#include "platform/files.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "tls/authority.h"
#include "tls/certificate.h"
#include "tls/identity.h"
#include "tls/tls_files.h"

namespace tandem::cli {
namespace {

constexpr char kAuthority[] = "ca";
constexpr char kAuthorityOf[] = "Tandem CA of ";  // and a domain: the common name of its certificate
constexpr char kController[] = "controller";
constexpr absl::Duration kDay = absl::Hours(24);
constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 3650);
// Clocks of other machines may be behind this one's.
constexpr absl::Duration kSkew = absl::Hours(1);

constexpr mode_t kPublic = 0644;
constexpr mode_t kSecret = 0600;

// Writes all of the text to disk. Returns false, with errno set, if it cannot.
bool WriteAll(int file, const std::string& text, mode_t mode) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(file, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) {
      return false;
    }
    written += count < 0 ? 0 : static_cast<size_t>(count);
  }
  // open(2) applied the umask to the mode.
  return fchmod(file, mode) == 0 && fsync(file) == 0;
}

// Makes a file and writes it to disk. Removes it if it cannot be written whole: later calls would not replace
// it.
absl::Status WriteNew(const std::string& path, const std::string& text, mode_t mode) {
  const platform::Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (file.get() < 0) {
    return platform::FileError(errno, "create", path);
  }
  if (!WriteAll(file.get(), text, mode)) {
    const int error = errno;
    unlink(path.c_str());
    return platform::FileError(error, "write", path);
  }
  return absl::OkStatus();
}

absl::Status WriteInPlace(const std::string& path, const std::string& text, mode_t mode) {
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());  // left by a renewal that was interrupted
  TANDEM_RETURN_IF_ERROR(WriteNew(fresh, text, mode));
  return platform::SystemFiles().Rename(fresh, path);
}

// A folder has certificates, NAME.crt (mode 0644), and keys, NAME.key (0600). The authority has the name
// "ca".
std::string CertificateFile(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name, ".crt");
}
std::string KeyFile(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name, ".key");
}

// Returns AlreadyExists if a file of one of the names exists. remedy: what the user can do then.
absl::Status CheckFree(const std::string& folder, const std::vector<std::string>& names,
                       absl::string_view remedy) {
  for (const std::string& name : names) {
    for (const std::string& path : {CertificateFile(folder, name), KeyFile(folder, name)}) {
      struct stat info {};
      if (lstat(path.c_str(), &info) == 0) {
        return absl::AlreadyExistsError(
            absl::StrCat(path, " is there already, and nothing is overwritten; ", remedy));
      }
    }
  }
  return absl::OkStatus();
}

// Writes both files of a credential. replace: by rename(2), so that a reader finds the old file or the new
// one; otherwise AlreadyExists if one of them exists, and neither is made.
absl::Status Store(const std::string& folder, const std::string& name, const tls::Credential& credential,
                   bool replace) {
  const auto write_file = replace ? WriteInPlace : WriteNew;
  TANDEM_RETURN_IF_ERROR(write_file(KeyFile(folder, name), credential.key, kSecret));
  absl::Status written = write_file(CertificateFile(folder, name), credential.certificate, kPublic);
  if (!written.ok() && !replace) {
    unlink(KeyFile(folder, name).c_str());
  }
  return written;
}

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  return platform::ReadAtMost(platform::SystemFiles(), path, tls::kMostPemBytes);
}

// Reads the certificate in a file. Errors name the file.
absl::StatusOr<tls::Certificate> ReadCertificate(const std::string& file) {
  TANDEM_ASSIGN_OR_RETURN(const std::string pem, ReadPem(file));
  absl::StatusOr<tls::Certificate> certificate = tls::DescribePem(pem);
  return certificate.ok() ? std::move(certificate)
                          : absl::Status(certificate.status().code(),
                                         absl::StrCat(Escape(file), ": ", certificate.status().message()));
}

// A certificate to make, and the name of its files.
struct Wanted {
  std::string name;
  tls::CertificateRequest request;
};

bool IsHost(const std::string& text) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 || inet_pton(AF_INET6, text.c_str(), bytes) == 1 ||
         (!text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '*';
         }));
}

// Returns the name of the files, without the * of a pool's name.
std::string FileName(const tls::Identity& identity) {
  std::string name = identity.name;
  std::replace(name.begin(), name.end(), '*', '_');
  const std::string text = tls::ToText({identity.role, name});
  return absl::StrCat(text.substr(0, text.find('/')), "-", name);
}

absl::StatusOr<std::vector<Wanted>> WantedOf(const CertsOptions& options) {
  std::vector<Wanted> out;
  const absl::Time now = absl::Now();
  if (options.days < 1 || options.days > 3650) {
    return absl::InvalidArgumentError(absl::StrCat("--days ", options.days, "; allowed: 1 to 3650"));
  }
  if (!tls::IsGoodDomain(options.domain)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--domain \"", Escape(options.domain), "\" is not a DNS name; the default is ", tls::kDefaultDomain));
  }
  const absl::Time end = now + options.days * kDay;
  if (!options.hosts.empty()) {
    for (const std::string& host : options.hosts) {
      if (!IsHost(host)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--host \"", Escape(host), "\" is neither a DNS name nor an IP address"));
      }
    }
    out.push_back({kController,
                   {.common_name = kController,
                    .uri = "",
                    .hosts = options.hosts,
                    .not_before = now - kSkew,
                    .not_after = end}});
  }
  for (const auto& [role, names] :
       {std::pair(tls::Role::kWorker, options.workers), std::pair(tls::Role::kUser, options.users),
        std::pair(tls::Role::kAdmin, options.admins)}) {
    for (const std::string& name : names) {
      const tls::Identity identity{role, name};
      if (!tls::IsGoodName(role, name)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "\"", Escape(name), "\" cannot name a certificate; allowed: 1 to 64 letters, digits and . _ @ -",
            role == tls::Role::kWorker ? ", and a * at the end for a pool of workers" : ""));
      }
      out.push_back({FileName(identity),
                     {.common_name = tls::ToText(identity).substr(0, 64),
                      .uri = tls::UriOf(identity, options.domain),
                      .hosts = {},
                      .not_before = now - kSkew,
                      .not_after = end}});
    }
  }
  std::set<std::string> names;
  for (const Wanted& each : out) {
    if (!names.insert(each.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(each.name, ".crt would be made twice; give each name, and each pool, only once"));
    }
  }
  return out;
}

// Refuses a domain that is not the authority's: a controller recognizes no user by such a certificate.
absl::Status CheckDomain(const tls::Credential& authority, const std::string& domain) {
  const absl::StatusOr<tls::Certificate> ca = tls::DescribePem(authority.certificate);
  const std::string ours = absl::StrCat("CN=", kAuthorityOf);
  if (ca.ok() && absl::StartsWith(ca->subject, ours) && ca->subject != ours + domain) {
    const std::string of = ca->subject.substr(ours.size());
    return absl::InvalidArgumentError(
        absl::StrCat("the authority is that of ", of, ", not of ", domain, "; give --domain ", of));
  }
  return absl::OkStatus();
}

// Refuses to renew a certificate without one of its names, because clients that use the name would be locked
// out.
absl::Status CheckRenewal(const std::string& folder, const std::vector<Wanted>& wanted) {
  for (const Wanted& each : wanted) {
    const std::string file = CertificateFile(folder, each.name);
    const absl::StatusOr<tls::Certificate> certificate = ReadCertificate(file);
    if (absl::IsNotFound(certificate.status())) {
      return absl::NotFoundError(absl::StrCat("there is no ", file, " to renew; omit --renew to make it"));
    }
    TANDEM_RETURN_IF_ERROR(certificate.status());
    if (!certificate->uris.empty() && std::find(certificate->uris.begin(), certificate->uris.end(),
                                                each.request.uri) == certificate->uris.end()) {
      return absl::InvalidArgumentError(absl::StrCat(file, " is that of ",
                                                     absl::StrJoin(certificate->uris, ", "), ", not of ",
                                                     each.request.uri, "; use another folder for it"));
    }
    for (const std::string& host : certificate->hosts) {
      if (std::find(each.request.hosts.begin(), each.request.hosts.end(), host) == each.request.hosts.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            file, " is for ", absl::StrJoin(certificate->hosts, ", "), ", and the new one would lack ", host,
            "; give a --host for each, or, to drop one, move the old files away and omit --renew"));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> NamesOf(const std::vector<Wanted>& wanted) {
  std::vector<std::string> out;
  for (const Wanted& each : wanted) {
    out.push_back(each.name);
  }
  return out;
}

absl::Status IssueAll(const std::string& folder, const tls::Credential& authority,
                      const std::vector<Wanted>& wanted, bool renew, Console& console) {
  for (const Wanted& each : wanted) {
    const std::string file = CertificateFile(folder, each.name);
    if (renew) {  // the former certificate stays valid until it expires, but can be revoked by its
                  // fingerprint
      TANDEM_ASSIGN_OR_RETURN(const tls::Certificate before, ReadCertificate(file));
      Note(console, absl::StrCat("certs: ", file, " replaces the certificate ", before.fingerprints->front(),
                                 ", which is good until ",
                                 absl::FormatTime("%Y-%m-%d", before.not_after, absl::UTCTimeZone())));
    }
    TANDEM_ASSIGN_OR_RETURN(const tls::Credential issued, tls::Issue(authority, each.request));
    TANDEM_RETURN_IF_ERROR(Store(folder, each.name, issued, renew));
    console.Write(Stream::kOut, absl::StrCat(file, "\n"));
  }
  return absl::OkStatus();
}

}  // namespace

Outcome CertsInit(Context& context, const CertsOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Wanted> wanted, WantedOf(options));
  const std::string& folder = options.folder;
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return platform::FileError(errno, "make the folder", folder);
  }
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::InvalidArgumentError(folder + " is not a folder");
  }
  std::vector<std::string> names = NamesOf(wanted);
  names.emplace_back(kAuthority);
  TANDEM_RETURN_IF_ERROR(
      CheckFree(folder, names,
                "use another --dir; `tandem certs issue` makes more certificates with the CA of a folder"));
  const absl::Time now = absl::Now();
  TANDEM_ASSIGN_OR_RETURN(
      const tls::Credential authority,
      tls::MakeAuthority(kAuthorityOf + options.domain, now - kSkew, now + kAuthorityLife));
  TANDEM_RETURN_IF_ERROR(Store(folder, kAuthority, authority, /*replace=*/false));
  context.Print(absl::StrCat(CertificateFile(folder, kAuthority), "\n"));
  TANDEM_RETURN_IF_ERROR(IssueAll(folder, authority, wanted, /*renew=*/false, context.console));
  Note(context.console,
       absl::StrCat("certs: everyone gets ca.crt and the two files of their own name; keep ",
                    KeyFile(folder, kAuthority),
                    " off every other machine: its holder can issue a certificate for any name"));
  return kOk;
}

Outcome CertsIssue(Context& context, const CertsOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Wanted> wanted, WantedOf(options));
  if (wanted.empty()) {
    return absl::InvalidArgumentError("say for whom: --host, --worker, --user or --admin");
  }
  const std::string& folder = options.folder;
  const absl::StatusOr<std::string> certificate = ReadPem(CertificateFile(folder, kAuthority));
  const absl::StatusOr<std::string> key = ReadPem(KeyFile(folder, kAuthority));
  if (!certificate.ok() || !key.ok()) {
    return absl::NotFoundError(absl::StrCat((certificate.ok() ? key : certificate).status().message(),
                                            "; `tandem certs init` makes it"));
  }
  const tls::Credential authority{.certificate = *certificate, .key = *key};
  TANDEM_RETURN_IF_ERROR(CheckDomain(authority, options.domain));
  TANDEM_RETURN_IF_ERROR(
      options.renew ? CheckRenewal(folder, wanted)
                    : CheckFree(folder, NamesOf(wanted), "give --renew to replace it, or another name"));
  TANDEM_RETURN_IF_ERROR(IssueAll(folder, authority, wanted, options.renew, context.console));
  return kOk;
}

Outcome CertsShow(Context& context, const CertsShowOptions& options) {
  Table table({Shrinking("FILE"), Shrinking("FOR"), Shrinking("ISSUER"), "VALID UNTIL", "STATE"});
  bool all_valid = true;
  for (const std::string& file : options.files) {
    const absl::StatusOr<tls::Certificate> certificate = ReadCertificate(file);
    if (!certificate.ok()) {
      return Failure(kFailed, absl::StrCat("certs show: ", certificate.status().message()));
    }
    std::vector<std::string> names = certificate->uris;
    names.insert(names.end(), certificate->hosts.begin(), certificate->hosts.end());
    const std::string why = tls::WhyNotValid(*certificate, absl::Now());
    all_valid = all_valid && why.empty();
    table.Add({file, names.empty() ? certificate->subject : absl::StrJoin(names, " "), certificate->issuer,
               absl::FormatTime("%Y-%m-%d %H:%M UTC", certificate->not_after, absl::UTCTimeZone()),
               why.empty() ? "valid" : why});
  }
  context.Print(table);
  return all_valid ? kOk : kFailed;
}

}  // namespace tandem::cli
