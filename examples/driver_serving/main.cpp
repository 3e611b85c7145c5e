/// A driver with an HTTP front, and the ranks of the model that it serves. See README.md.
/// Usage: driver_serving rank|driver|answers [OPTION VALUE]…

#include "serving.hpp"

#include <csignal>
#include <cstdio>
#include <string_view>

namespace {

volatile std::sig_atomic_t signal_received = 0;

void take_signal(int which) {
  signal_received = which;
}

} // namespace

int told_by() noexcept {
  return signal_received;
}

int run_answers(const command_line& line) {
  shard model = model_of(line);
  model.batch = 1;
  for (std::uint64_t number = 0; number < line.number<std::uint64_t>("--count", 4); ++number) {
    for (const float one : answer_alone(model, tokens_of(number, model))) std::printf("%.9g ", one);
    std::printf("\n");
  }
  return 0;
}

int main(int count, char** words) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const int one : {SIGTERM, SIGINT}) std::signal(one, take_signal);
  const std::string_view mode = count > 1 ? words[1] : "";
  const auto rest = [&](std::initializer_list<std::string_view> own) {
    return command_line{count - 1, words + 1, own, {{"log_level", "error"}}};
  };
  if (mode == "rank") return run_rank(rest({"--width", "--layers", "--batch", "--own-sums"}));
  if (mode == "driver")
    return run_driver(
        rest({"--width", "--layers", "--batch", "--bind", "--port", "--users", "--results-at", "--ballast"}));
  if (mode == "answers") return run_answers(rest({"--width", "--layers", "--batch", "--count"}));
  std::fprintf(stderr, "Usage: driver_serving rank|driver|answers [OPTION VALUE]...\n");
  return 2;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return failure.why().code == troupe::errc::stopping ? 0 : 1; // stopping: a spare that was not needed
}
