#include <troupe/completion/admission/credit.hpp>

#include <troupe/completion/admission/admission_quota.hpp>

#include <string>
#include <utility>

namespace troupe {

pending_amount credit::size() const noexcept {
  return pool_ ? pool_->size() : pending_amount{};
}

credit::pool::pool(std::shared_ptr<admission_quota> where, pending_amount size) noexcept
  : where_{std::move(where)}, size_{size} {}

credit::pool::~pool() {
  where_->give_back(size_);
}

error credit::pool::charge(std::size_t bytes, reply_promise& reply) {
  if (!where_->counts_bytes()) bytes = 0;
  if (bytes > size_.bytes)
    return {.code = errc::invalid_argument,
            .text = "the request names " + std::to_string(bytes) + " bytes, and its credit covers " +
                    std::to_string(size_.bytes) + ": ask for more credit, or send the request without credit"};
  if (operations_.take(1, size_.operations)) {
    if (bytes_.take(bytes, size_.bytes)) {
      reply.carry({*this, {1, bytes}, shared_from_this()});
      return {};
    }
    operations_.give_back(1);
  }
  return {.code = errc::busy,
          .text = "pending requests use up the credit (" + std::to_string(size_.operations) + " requests, " +
                  std::to_string(size_.bytes) + " bytes): ask again after one of their replies"};
}

void credit::pool::give_back(pending_amount what) noexcept {
  operations_.give_back(what.operations);
  bytes_.give_back(what.bytes);
}

} // namespace troupe
