#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/testing/mock_world.hpp>

#include <condition_variable>
#include <mutex>
#include <utility>

namespace troupe::testing {

/// Wakes threads that wait for an event.
class mock_world::phases {
public:
  void changed() {
    { const std::lock_guard lock{mutex_}; }
    heard_.notify_all();
  }
  template <class Enough>
  bool wait(nanoseconds at_most, Enough enough) {
    std::unique_lock lock{mutex_};
    return heard_.wait_for(lock, at_most, enough);
  }

private:
  std::mutex mutex_;
  std::condition_variable heard_;
};

configuration mock_settings(int ranks) {
  configuration settings;
  settings.backend = backend_choice::mock;
  settings.mock_devices = ranks;
  settings.mock_memory_bytes = std::size_t{16} << 20U;
  settings.profile = latency_profile::frugal;
  settings.placement = thread_placement::anywhere;
  settings.scheduler_threads = 1;
  settings.log_level = "off";
  return settings;
}

mock_world::mock_world(configuration settings) {
  if (settings.backend != backend_choice::mock)
    throw exception{errc::invalid_argument, "backend is " + std::string{to_string(settings.backend)} +
                                                ", but a mock world needs the backend mock: use mock_settings()"};
  if (!settings.faults) settings.faults = std::make_shared<fault_script>();
  script_ = std::dynamic_pointer_cast<fault_script>(settings.faults);
  if (!script_)
    throw exception{errc::invalid_argument, "a mock world's faults are a fault_script: for an injector of your own "
                                            "make a troupe::runtime"};
  runtime_ = std::make_unique<troupe::runtime>(std::move(settings));
  world_ = std::make_unique<troupe::world>(runtime_->form_world());
  phases_ = std::make_shared<phases>();
  world_->on_event([heard = phases_](const world_event&) { heard->changed(); });
  devices_ = &dynamic_cast<mock_driver&>(runtime_->api());
  script_->attach(devices_);
}

mock_world::~mock_world() {
  script_->attach(nullptr);
  script_->release();
}

bool mock_world::wait_until_ready(epoch wanted, nanoseconds at_most) const {
  return phases_->wait(at_most, [&] {
    const world_event latest = world_->status();
    return latest.phase == world_phase::ready && latest.epoch >= wanted;
  });
}

} // namespace troupe::testing
