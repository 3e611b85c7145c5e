/// Options that every subcommand with a world has: they change what the environment has set.
#pragma once

#include <troupe/runtime/configuration.hpp>

#include <string>

namespace CLI {
class App;
}

namespace troupe::program {

class runtime_options {
public:
  void add_to(CLI::App& command);
  /// The environment's configuration, changed by the options given.
  [[nodiscard]] configuration settings() const;

private:
  std::string backend_;
  std::string profile_;
  std::string strategy_;
  std::string nccl_;
  std::string log_;
  int ranks_ = -1;
};

} // namespace troupe::program
