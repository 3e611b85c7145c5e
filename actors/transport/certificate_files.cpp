#include <troupe/actors/transport/certificates.hpp>

#include <troupe/actors/transport/guard_socket.hpp>
#include <troupe/actors/transport/join_secret.hpp>
#include <troupe/device/error.hpp>

#include <openssl/crypto.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

constexpr int longest_days = 3'650;
constexpr mode_t owner_only = S_IRUSR | S_IWUSR;

[[noreturn]] void system_failed(const char* call, const std::string& what) {
  const int code = errno;
  throw exception{error{.code = code == EEXIST ? errc::invalid_argument : errc::internal,
                        .text = what,
                        .call = call,
                        .native_code = code,
                        .native_text = std::strerror(code)}};
}

void write_new_file(const std::filesystem::path& file, std::string_view text) {
  const guard_socket to{::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, owner_only)};
  if (!to) system_failed("open", "'" + file.string() + "' could not be created");
  while (!text.empty()) {
    const ssize_t written = ::write(to.descriptor(), text.data(), text.size());
    if (written < 0) system_failed("write", "'" + file.string() + "' could not be written");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code problem;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), problem);
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && (errno != EEXIST || !std::filesystem::is_directory(folder, problem)))
    system_failed("mkdir", "the folder '" + folder.string() + "' could not be created");
}

/// Returns 256 random bits in hexadecimal.
std::string new_token() {
  static constexpr std::string_view digits = "0123456789abcdef";
  guard_nonce bits = fresh_nonce();
  std::string made;
  for (const std::uint8_t one : bits) {
    made += digits[one >> 4u];
    made += digits[one & 15u];
  }
  OPENSSL_cleanse(bits.data(), bits.size());
  return made + "\n";
}

struct planned_file {
  const char* name;
  std::string text;
  const char* purpose;
};

} // namespace

std::vector<made_file> make_certificates(const certificate_order& order) {
  if (order.folder.empty()) throw exception{errc::invalid_argument, "name the folder to put certificates into"};
  if (order.days < 1 || order.days > longest_days)
    throw exception{errc::invalid_argument, "certificates cannot be valid for " + std::to_string(order.days) +
                                                " days: choose 1 to " + std::to_string(longest_days)};
  std::vector<std::string> hosts{"localhost", "127.0.0.1", "::1"};
  hosts.insert(hosts.end(), order.hosts.begin(), order.hosts.end());

  const certificate_span span = valid_for(std::chrono::hours{24} * order.days);
  const certificate_authority authority{"troupe test CA", span};
  certificate_pair own = authority.own();
  certificate_pair controller = authority.issue(certificate_use::controller, hosts, span);
  certificate_pair host = authority.issue(certificate_use::host, hosts, span);
  std::vector<planned_file> all;
  all.push_back({"ca.pem", std::move(own.certificate), "the CA's certificate: every process needs it"});
  all.push_back({"ca.key", std::move(own.key), "the CA's key, which signs: no process needs it; keep it elsewhere"});
  all.push_back({"controller.pem", std::move(controller.certificate), "the controller's certificate"});
  all.push_back({"controller.key", std::move(controller.key), "the controller's key"});
  all.push_back({"host.pem", std::move(host.certificate), "the other processes' certificate"});
  all.push_back({"host.key", std::move(host.key), "the other processes' key"});
  all.push_back({"join.token", new_token(), "the join token: every process needs it"});

  make_folder(order.folder);
  std::vector<made_file> made;
  for (const planned_file& one : all) {
    const std::filesystem::path file = order.folder / one.name;
    if (std::error_code none; std::filesystem::exists(std::filesystem::symlink_status(file, none)))
      throw exception{errc::invalid_argument, "'" + file.string() +
                                                  "' already exists and is not overwritten: choose another folder, or "
                                                  "remove files that no process uses any more"};
    made.push_back({file, one.purpose});
  }
  for (planned_file& one : all) {
    write_new_file(order.folder / one.name, one.text);
    OPENSSL_cleanse(one.text.data(), one.text.size());
  }
  return made;
}

} // namespace troupe
