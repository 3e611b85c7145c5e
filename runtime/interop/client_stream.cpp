#include <troupe/runtime/interop/client_stream.hpp>
#include <troupe/runtime/world.hpp>

#include <algorithm>
#include <string>

namespace troupe {

client_stream::client_stream(const world& where, rank target, native_stream yours)
  : rank_{target}, device_{where.device_of(target)}, native_{yours} {}

client_stream::client_stream(const world& where, rank target, CUstream_st* yours)
  : client_stream{where, target, reinterpret_cast<native_stream>(yours)} {
  if (device_->api().name() != "cuda")
    throw exception{errc::unsupported, "a CUDA stream cannot be used with the " + std::string{device_->api().name()} +
                                           " driver: form the world on GPUs, or give it a troupe::stream"};
}

void client_stream::wait_for(const enqueued& told) const {
  const auto mine = std::ranges::find(told.ranks, rank_, &launch_mark::rank);
  if (mine == told.ranks.end())
    throw exception{errc::invalid_argument,
                    "the request has no part of rank " + to_string(rank_) + ", to whose device this stream belongs"};
  ref().wait(*mine->behind);
}

void client_stream::wait_for(const operand& values) const {
  if (values.ready) ref().wait(*values.ready);
}

} // namespace troupe
