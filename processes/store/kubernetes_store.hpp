/// A store in Kubernetes: a Lease (coordination.k8s.io/v1), with the decisions in an annotation.
#pragma once

#include <troupe/processes/store/controller_store.hpp>
#include <troupe/processes/store/http_client.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The address of the API server, and the Lease that the controllers of one world share.
struct kubernetes_options {
  std::string server{};          ///< Its address, for example "https://10.96.0.1:443".
  std::string lease_namespace{}; ///< A DNS label, like the name.
  std::string lease{};           ///< The name of the Lease, which is created if there is none.
  http_options http{};
};

/// Where a pod finds the token of its service account, the certificate of the API server's authority (ca.crt) and its
/// own namespace.
inline constexpr const char* service_account_folder = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Reads kubernetes://NAMESPACE/LEASE in a pod, whose \p variables and \p account complete \p access, or
/// kubernetes://HOST:PORT/NAMESPACE/LEASE, where nothing of a pod is used. Without NAMESPACE (kubernetes:///LEASE) it
/// is that of the pod. kubernetes+http://HOST:PORT/… is without TLS, for `kubectl proxy` on loopback. Errors:
/// invalid_argument (another form, no DNS label, not in a pod; without TLS beyond loopback).
[[nodiscard]] kubernetes_options parse_kubernetes_url(std::string_view url, http_options access = {},
                                                      const variable_lookup& variables = process_variables(),
                                                      const std::filesystem::path& account = service_account_folder);

/// Each step compares the Lease's resourceVersion in the request that writes it. The claim is `holderIdentity` with
/// `leaseTransitions`, which each election increments.
///
/// The API server ends no claim: another controller takes the Lease over when it has not changed for its length and
/// lease_bound(), by that controller's boot clock, since that has seen its version for the first time. The version was
/// written before, so the former claim had at least its length. No clocks of two machines are compared.
class kubernetes_store final : public controller_store {
public:
  /// Errors: missing, unsupported (see http_client).
  explicit kubernetes_store(kubernetes_options options);
  ~kubernetes_store() override;

  [[nodiscard]] std::optional<store_claim> campaign(const std::string& leader, nanoseconds length) override;
  [[nodiscard]] bool renew(const store_claim& claim) override;
  /// Errors: also unsupported (\p record is larger than annotations may be).
  [[nodiscard]] bool decide(const store_claim& claim, const std::string& record) override;
  [[nodiscard]] store_view observe() override;
  void resign(const store_claim& claim) override;
  [[nodiscard]] std::string name() const override;

private:
  struct lease;

  /// Sends a request of this \p verb of Kubernetes. Returns an answer 200, 201, 404 or 409. Errors: missing.
  [[nodiscard]] http_response ask(std::string_view verb, const std::string& body);
  void read();
  /// Replaces the Lease that was seen last, or creates it. Returns false if that has changed meanwhile.
  [[nodiscard]] bool write(lease next);
  /// Lets \p change change what was seen, and writes it; reads it anew if it has changed meanwhile. Returns false if
  /// \p change has.
  [[nodiscard]] bool update(const std::function<bool(lease&)>& change);
  [[nodiscard]] bool holds(const lease& present, const store_claim& claim) const;
  [[nodiscard]] bool is_free(const lease& present) const;
  void note(lease present);

  const kubernetes_options options_;
  const std::string leases_; ///< The address of all Leases of the namespace.
  http_client http_;
  std::string leader_;          ///< The name under which this controller has campaigned.
  std::unique_ptr<lease> seen_; ///< As it was read or written last; null: it is to be read.
  std::string watched_;         ///< The version that was seen last.
  boot_time watched_since_{};   ///< When it was seen for the first time.
};

} // namespace troupe
