#include <troupe/runtime/local_device.hpp>

#include <troupe/device/error.hpp>

#include <string>

namespace troupe {

device_id choose_local_device(const process_position& position, int device_count) {
  if (device_count == 1) return device_id{0};
  if (position.local_rank < device_count) return device_id{position.local_rank};
  throw exception{errc::invalid_argument,
                  std::string{names_for(position.launcher).local_rank} + " is " + std::to_string(position.local_rank) +
                      ", but this process sees " + std::to_string(device_count) +
                      " devices: start at most as many processes on a host as it has devices, or let the launcher show "
                      "each process one device (CUDA_VISIBLE_DEVICES; srun --gpus-per-task=1); on the mock, raise "
                      "mock.devices"};
}

} // namespace troupe
