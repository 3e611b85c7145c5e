#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/runtime/world_core.hpp>
#include <troupe/testing/mock_world.hpp>

#include <utility>

namespace troupe::testing {

configuration mock_settings(int ranks) {
  configuration settings;
  settings.backend = backend_choice::mock;
  settings.mock.devices = ranks;
  settings.mock.memory_bytes = std::size_t{16} << 20U;
  settings.profile = latency_profile::frugal;
  settings.placement = thread_placement::anywhere;
  settings.scheduler_threads = 1;
  settings.log_level = "off";
  return settings;
}

mock_world::mock_world(caf::actor_system* host, configuration settings) {
  if (settings.backend != backend_choice::mock)
    throw exception{errc::invalid_argument, "backend is " + std::string{to_string(settings.backend)} +
                                                ", but a mock world needs the backend mock: use mock_settings()"};
  if (!settings.faults) settings.faults = std::make_shared<fault_script>();
  script_ = std::dynamic_pointer_cast<fault_script>(settings.faults);
  if (!script_)
    throw exception{errc::invalid_argument, "a mock world's faults are a fault_script: for an injector of your own "
                                            "make a troupe::runtime"};
  runtime_ = host == nullptr ? std::make_unique<troupe::runtime>(std::move(settings))
                             : std::make_unique<troupe::runtime>(*host, std::move(settings));
  world_ = std::make_unique<troupe::world>(runtime_->form_world());
  devices_ = &dynamic_cast<mock_driver&>(runtime_->api());
  script_->attach(devices_);
}

mock_world::~mock_world() {
  if (core_of(*world_).made.is_inherited())
    return; // the script's lock may have been held, and its lines are the parent's
  script_->attach(nullptr);
  script_->release();
}

} // namespace troupe::testing
