/// The shared state of all copies of a credit. Not for users.
#pragma once

#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/completion/admission/bounded_count.hpp>
#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <memory>

namespace troupe {

/// Pays for the requests charged to one credit. Its destructor returns the quota.
class credit::pool final : public payer, public std::enable_shared_from_this<pool> {
public:
  /// \p size has already been reserved in \p where.
  pool(std::shared_ptr<admission_quota> where, pending_amount size) noexcept;
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;
  ~pool() override;

  /// Charges a request with \p bytes of buffers and stores the charge in \p reply. Errors: busy (as many requests as
  /// the credit allows are pending), invalid_argument (the credit is too small for the request).
  [[nodiscard]] error charge(std::size_t bytes, reply_promise& reply);
  void give_back(pending_amount what) noexcept override;

  [[nodiscard]] pending_amount size() const noexcept { return size_; }
  [[nodiscard]] bool is_of(const admission_quota& where) const noexcept { return where_.get() == &where; }

private:
  std::shared_ptr<admission_quota> where_;
  pending_amount size_;
  bounded_count operations_;
  bounded_count bytes_;
};

} // namespace troupe
