#include <troupe/program/bench/bench_sizes.hpp>

#include <troupe/device/error.hpp>

#include <string>

namespace troupe::program {

std::vector<std::size_t> sizes_between(std::size_t begin, std::size_t end, size_step step) {
  constexpr std::size_t most = 4096;
  if (begin < 8 || end < begin)
    throw exception{errc::invalid_argument, "the sizes run from " + std::to_string(begin) + " to " +
                                                std::to_string(end) +
                                                ": the first must be at least 8 and no more than the last"};
  if (step.bytes == 0 && step.factor < 2)
    throw exception{errc::invalid_argument,
                    "the factor " + std::to_string(step.factor) +
                        " does not increase the size: give a factor of at least 2, or a step in bytes"};
  std::vector<std::size_t> sizes{begin};
  for (std::size_t last = begin;; sizes.push_back(last)) {
    // Compared before it is computed, because the next size may overflow.
    if (step.bytes > 0 ? step.bytes > end - last : last > end / step.factor) return sizes;
    if (sizes.size() == most)
      throw exception{errc::invalid_argument, "steps of " + std::to_string(step.bytes) + " bytes up to " +
                                                  std::to_string(end) + " give more than " + std::to_string(most) +
                                                  " sizes: take larger steps, or a factor"};
    last = step.bytes > 0 ? last + step.bytes : last * step.factor;
  }
}

} // namespace troupe::program
