// SPDX-License-Identifier: Apache-2.0
// The commands `tandem certs ...`: certificates for a cluster that has no authority of its own.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
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

// A folder of certificates, NAME.crt (mode 0644), and keys, NAME.key (0600). The authority has the name "ca".
// Errors are one line with the path.
class CredentialFolder {
 public:
  // Opens the folder; if it does not exist and `make` is set, makes it with mode 0700.
  static absl::StatusOr<CredentialFolder> Open(const std::string& folder, bool make) {
    struct stat info {};
    if (make && mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return platform::FileError(errno, "make the folder", folder);
    }
    if (stat(folder.c_str(), &info) != 0) {
      return platform::FileError(errno, "open the folder", folder);
    }
    if (!S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(folder + " is not a folder");
    }
    return CredentialFolder(folder);
  }

  std::string CertificateFile(const std::string& name) const { return folder_ + "/" + name + ".crt"; }
  std::string KeyFile(const std::string& name) const { return folder_ + "/" + name + ".key"; }

  // Returns AlreadyExists if a file of one of the names exists. remedy: what the user can do then.
  absl::Status CheckFree(const std::vector<std::string>& names, absl::string_view remedy) const {
    for (const std::string& name : names) {
      for (const std::string& path : {CertificateFile(name), KeyFile(name)}) {
        struct stat info {};
        if (lstat(path.c_str(), &info) == 0) {
          return absl::AlreadyExistsError(
              absl::StrCat(path, " is there already, and nothing is overwritten; ", remedy));
        }
      }
    }
    return absl::OkStatus();
  }

  // Adds both files. AlreadyExists if one of them exists; nothing is replaced.
  absl::Status Add(const std::string& name, const tls::Credential& credential) const {
    TANDEM_RETURN_IF_ERROR(WriteNew(KeyFile(name), credential.key, kSecret));
    absl::Status added = WriteNew(CertificateFile(name), credential.certificate, kPublic);
    if (!added.ok()) {
      unlink(KeyFile(name).c_str());
    }
    return added;
  }

  // Replaces each file by rename(2), so that a reader finds the old one or the new one.
  absl::Status Replace(const std::string& name, const tls::Credential& credential) const {
    TANDEM_RETURN_IF_ERROR(WriteInPlace(KeyFile(name), credential.key, kSecret));
    return WriteInPlace(CertificateFile(name), credential.certificate, kPublic);
  }

  absl::StatusOr<tls::Credential> Read(const std::string& name) const {
    tls::Credential out;
    TANDEM_ASSIGN_OR_RETURN(out.certificate, platform::ReadAtMost(platform::SystemFiles(),
                                                                  CertificateFile(name), tls::kMostPemBytes));
    TANDEM_ASSIGN_OR_RETURN(out.key,
                            platform::ReadAtMost(platform::SystemFiles(), KeyFile(name), tls::kMostPemBytes));
    return out;
  }

 private:
  explicit CredentialFolder(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
};

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

// Refuses to renew a certificate without one of its names: clients that use this name would be locked out.
absl::Status CheckRenewal(const CredentialFolder& folder, const std::vector<Wanted>& wanted) {
  for (const Wanted& each : wanted) {
    const std::string file = folder.CertificateFile(each.name);
    const absl::StatusOr<tls::Credential> former = folder.Read(each.name);
    if (absl::IsNotFound(former.status())) {
      return absl::NotFoundError(absl::StrCat("there is no ", file, " to renew; omit --renew to make it"));
    }
    TANDEM_RETURN_IF_ERROR(former.status());
    const absl::StatusOr<tls::Certificate> certificate = tls::DescribePem(former->certificate);
    if (!certificate.ok()) {
      return absl::Status(certificate.status().code(),
                          absl::StrCat(file, ": ", certificate.status().message()));
    }
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

absl::Status IssueAll(const CredentialFolder& folder, const tls::Credential& authority,
                      const std::vector<Wanted>& wanted, bool renew, Console& console) {
  for (const Wanted& each : wanted) {
    if (renew) {  // the former one stays valid until it expires, but can be revoked by its fingerprint
      TANDEM_ASSIGN_OR_RETURN(const tls::Credential former, folder.Read(each.name));
      TANDEM_ASSIGN_OR_RETURN(const tls::Certificate before, tls::DescribePem(former.certificate));
      Note(console, absl::StrCat("certs: ", folder.CertificateFile(each.name), " replaces the certificate ",
                                 before.fingerprints->front(), ", which is good until ",
                                 absl::FormatTime("%Y-%m-%d", before.not_after, absl::UTCTimeZone())));
    }
    TANDEM_ASSIGN_OR_RETURN(const tls::Credential issued, tls::Issue(authority, each.request));
    TANDEM_RETURN_IF_ERROR(renew ? folder.Replace(each.name, issued) : folder.Add(each.name, issued));
    console.Write(Stream::kOut, absl::StrCat(folder.CertificateFile(each.name), "\n"));
  }
  return absl::OkStatus();
}

}  // namespace

Outcome CertsInit(Context& context, const CertsOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Wanted> wanted, WantedOf(options));
  TANDEM_ASSIGN_OR_RETURN(const CredentialFolder folder,
                          CredentialFolder::Open(options.folder, /*make=*/true));
  std::vector<std::string> names = NamesOf(wanted);
  names.emplace_back(kAuthority);
  TANDEM_RETURN_IF_ERROR(folder.CheckFree(
      names, "use another --dir; `tandem certs issue` makes more certificates with the CA of a folder"));
  const absl::Time now = absl::Now();
  TANDEM_ASSIGN_OR_RETURN(
      const tls::Credential authority,
      tls::MakeAuthority(kAuthorityOf + options.domain, now - kSkew, now + kAuthorityLife));
  TANDEM_RETURN_IF_ERROR(folder.Add(kAuthority, authority));
  context.Print(absl::StrCat(folder.CertificateFile(kAuthority), "\n"));
  TANDEM_RETURN_IF_ERROR(IssueAll(folder, authority, wanted, /*renew=*/false, context.console));
  Note(context.console,
       absl::StrCat("certs: everyone gets ca.crt and the two files of their own name; keep ",
                    folder.KeyFile(kAuthority),
                    " off every other machine: its holder can issue a certificate for any name"));
  return kOk;
}

Outcome CertsIssue(Context& context, const CertsOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Wanted> wanted, WantedOf(options));
  if (wanted.empty()) {
    return absl::InvalidArgumentError("say for whom: --host, --worker, --user or --admin");
  }
  TANDEM_ASSIGN_OR_RETURN(const CredentialFolder folder,
                          CredentialFolder::Open(options.folder, /*make=*/false));
  const absl::StatusOr<tls::Credential> authority = folder.Read(kAuthority);
  if (!authority.ok()) {
    return absl::NotFoundError(absl::StrCat(authority.status().message(), "; `tandem certs init` makes it"));
  }
  TANDEM_RETURN_IF_ERROR(CheckDomain(*authority, options.domain));
  TANDEM_RETURN_IF_ERROR(
      options.renew ? CheckRenewal(folder, wanted)
                    : folder.CheckFree(NamesOf(wanted), "give --renew to replace it, or another name"));
  TANDEM_RETURN_IF_ERROR(IssueAll(folder, *authority, wanted, options.renew, context.console));
  return kOk;
}

Outcome CertsShow(Context& context, const CertsShowOptions& options) {
  Table table({Shrinking("FILE"), Shrinking("FOR"), Shrinking("ISSUER"), "VALID UNTIL", "STATE"});
  bool all_valid = true;
  for (const std::string& file : options.files) {
    const absl::StatusOr<std::string> text =
        platform::ReadAtMost(platform::SystemFiles(), file, tls::kMostPemBytes);
    const absl::StatusOr<tls::Certificate> certificate =
        text.ok() ? tls::DescribePem(*text) : absl::StatusOr<tls::Certificate>(text.status());
    if (!certificate.ok()) {
      return Failure(kFailed, absl::StrCat("certs show: ", text.ok() ? Escape(file) + ": " : "",
                                           certificate.status().message()));
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
