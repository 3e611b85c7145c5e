/// The order of a world over processes as its connection has made it.
#pragma once

#include <troupe/processes/order/order_connection.hpp>

#include <memory>

namespace troupe::tests {

inline std::shared_ptr<distributed_order> connected(const std::shared_ptr<world_order>& of) {
  return std::dynamic_pointer_cast<distributed_order>(of);
}

} // namespace troupe::tests
