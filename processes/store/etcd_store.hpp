/// A store in etcd (version 3.4 or later), by the JSON gateway that each of its servers has.
#pragma once

#include <troupe/processes/store/controller_store.hpp>
#include <troupe/processes/store/http_client.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Where etcd is, and which keys are ours.
struct etcd_options {
  std::vector<std::string> endpoints{}; ///< Addresses of its servers, for example "http://127.0.0.1:2379".
  std::string prefix{};                 ///< The world's name: its keys are "PREFIX/leader" and "PREFIX/world".
  http_options http{};
};

/// Reads etcd://HOST:PORT[,HOST:PORT…]/PREFIX or, with TLS, etcds://…. Errors: invalid_argument (another form; without
/// TLS beyond loopback).
[[nodiscard]] etcd_options parse_etcd_url(std::string_view url);

/// The claim is the key PREFIX/leader, which belongs to a lease of etcd, and whose revision of creation each decision
/// compares in the transaction that writes it. Servers are asked in turn until one answers.
class etcd_store final : public controller_store {
public:
  /// Errors: missing, unsupported (see http_client), invalid_argument (no endpoint, no prefix).
  explicit etcd_store(etcd_options options);

  [[nodiscard]] std::optional<store_claim> campaign(const std::string& leader, nanoseconds length) override;
  [[nodiscard]] bool renew(const store_claim& claim) override;
  [[nodiscard]] bool decide(const store_claim& claim, const std::string& record) override;
  [[nodiscard]] store_view observe() override;
  void resign(const store_claim& claim) override;
  [[nodiscard]] std::string name() const override;

private:
  struct key_value {
    std::string value{};
    std::uint64_t created = 0;
    std::uint64_t lease = 0;
  };

  /// Returns the body of a successful answer. Errors: missing.
  [[nodiscard]] std::string call(const std::string& path, const std::string& body);
  [[nodiscard]] std::optional<key_value> read(const std::string& key);
  /// Returns a lease of etcd that lasts for about \p length from now.
  [[nodiscard]] std::uint64_t lease_of(nanoseconds length);
  [[nodiscard]] bool keep_alive(std::uint64_t lease);

  const etcd_options options_;
  const std::string leader_key_;
  const std::string record_key_;
  http_client http_;
  std::size_t present_ = 0;    ///< The endpoint that answered last.
  std::uint64_t lease_ = 0;    ///< A lease that no claim has used yet; 0: none.
  nanoseconds lease_length_{}; ///< Of the latest.
};

} // namespace troupe
