/// What copies of a credit share. Not for users.
#pragma once

#include <troupe/completion/answer.hpp>
#include <troupe/completion/bounded_count.hpp>
#include <troupe/completion/credit.hpp>
#include <troupe/completion/pending_work.hpp>

#include <memory>

namespace troupe {

/// Pays for the requests under one credit; its end gives the room back.
class credit::purse final : public payer, public std::enable_shared_from_this<purse> {
public:
  /// \p size has been set aside in \p where.
  purse(std::shared_ptr<pending_work> where, pending_amount size) noexcept;
  purse(const purse&) = delete;
  purse& operator=(const purse&) = delete;
  ~purse() override;

  /// Charges \p reply with a request. Errors: busy (as many are pending), invalid_argument (one that it can never be
  /// for).
  [[nodiscard]] error charge(std::size_t bytes, answer& reply);
  void give_back(pending_amount what) noexcept override;

  [[nodiscard]] pending_amount size() const noexcept { return size_; }
  [[nodiscard]] bool is_of(const pending_work& where) const noexcept { return where_.get() == &where; }

private:
  std::shared_ptr<pending_work> where_;
  pending_amount size_;
  bounded_count operations_;
  bounded_count bytes_;
};

} // namespace troupe
