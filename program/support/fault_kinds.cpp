#include <troupe/actors.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/program/support/fault_kinds.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

raised_fault happened_at(time_point when) {
  std::promise<time_point> told;
  told.set_value(when);
  return {told.get_future()};
}

/// Arms a consequence of another armed call. It is not awaited, because it follows from that call.
void arm_also(const fault_scene& scene, armed_call what, rank whom, nanoseconds span = nanoseconds{0}) {
  static_cast<void>(scene.faults.arm(what, whom, span));
}

raised_fault refuse_next_launch(const fault_scene& scene) {
  return {scene.faults.arm(armed_call::refused_launch, scene.whom)};
}

class withheld_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "withheld"; }
  [[nodiscard]] std::string_view what() const noexcept override {
    return "a rank launches nothing any more; its peers' operations hang on the device";
  }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    return {scene.faults.arm(armed_call::withheld_launch, scene.whom)};
  }
};

class refused_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "refused"; }
  [[nodiscard]] std::string_view what() const noexcept override {
    return "a rank's launch fails; its peers' operations hang on the device";
  }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override { return refuse_next_launch(scene); }
};

class async_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "async"; }
  [[nodiscard]] std::string_view what() const noexcept override {
    return "a rank launches nothing any more, and a peer's communicator reports an error";
  }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    auto withheld = scene.faults.arm(armed_call::withheld_launch, scene.whom);
    arm_also(scene, armed_call::failed_check, rank{(scene.whom.value() + 1) % scene.where.size()});
    return {std::move(withheld)};
  }
};

class init_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "init"; }
  [[nodiscard]] std::string_view what() const noexcept override {
    return "a launch fails, and then the forming of the next epoch";
  }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    arm_also(scene, armed_call::failed_init, scene.whom);
    return refuse_next_launch(scene);
  }
};

class hung_init_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "init-hang"; }
  [[nodiscard]] std::string_view what() const noexcept override {
    return "a launch fails, and the forming of the next epoch hangs (until deadlines.form)";
  }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    arm_also(scene, armed_call::hung_init, scene.whom);
    return refuse_next_launch(scene);
  }
};

class slow_abort_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "slow-abort"; }
  [[nodiscard]] std::string_view what() const noexcept override { return "a launch fails, and a rank's abort is slow"; }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    arm_also(scene, armed_call::slow_abort, scene.whom, scene.slow_abort_takes);
    return refuse_next_launch(scene);
  }
};

class memory_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "memory"; }
  [[nodiscard]] std::string_view what() const noexcept override {
    return "an allocation of more than a device has is refused; the world stays ready";
  }
  [[nodiscard]] aftermath leads_to() const noexcept override { return aftermath::stays_ready; }
  [[nodiscard]] bool needs_peers() const noexcept override { return false; }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    const device& on = *scene.where.device_of(scene.whom);
    const std::size_t too_much = on.api().describe(on.id()).total_bytes + 1;
    const time_point began = monotonic_clock{}.now();
    try {
      static_cast<void>(scene.where.allocate(scene.whom, too_much));
    } catch (const exception& refused) {
      if (refused.why().code == errc::out_of_memory) return happened_at(began);
      throw;
    }
    throw exception{errc::internal, "an allocation of " + std::to_string(too_much) + " bytes, one more than " +
                                        device_name(on) + " has, was not refused"};
  }

private:
  static std::string device_name(const device& which) { return "device " + to_string(which.id()); }
};

class killed_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "killed"; }
  [[nodiscard]] std::string_view what() const noexcept override { return "a rank's collective actor is killed"; }
  [[nodiscard]] bool needs_peers() const noexcept override { return false; }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    const time_point now = monotonic_clock{}.now();
    caf::anon_send_exit(collective_of(scene.where, scene.whom), caf::exit_reason::kill);
    return happened_at(now);
  }
};

std::size_t place_of(const fault_scene& scene) {
  const auto& locals = scene.where.local_ranks();
  return static_cast<std::size_t>(std::ranges::find(locals, scene.whom) - locals.begin());
}

/// A client's kernel that runs for a long time, and a request that waits for it.
class spinning_fault final : public fault_kind {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "spinning"; }
  [[nodiscard]] std::string_view what() const noexcept override {
    return "a client's kernel spins on a rank's device, and an operation waits for it";
  }
  [[nodiscard]] bool needs_peers() const noexcept override { return false; }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    constexpr std::size_t count = 256;
    const auto own = std::make_shared<stream>(scene.where.device_of(scene.whom));
    std::vector<operation> parts;
    for (const rank self : scene.where.local_ranks()) {
      operand send{scene.where.allocate(self, count * sizeof(float))};
      const buffer recv = scene.where.allocate(self, count * sizeof(float));
      if (self == scene.whom) {
        scene.harm.at(place_of(scene)).spin(own->ref(), scene.spin_takes);
        send.ready = record_event(scene.where.device_of(self), own->ref());
      }
      parts.emplace_back(all_reduce{.send = std::move(send), .recv = recv, .count = count});
    }
    raised_fault raised = happened_at(monotonic_clock{}.now());
    raised.request = world{scene.where}.ask(std::move(parts));
    raised.held = own;
    return raised;
  }
};

/// A fault from which this process cannot recover.
class sticky_fault final : public fault_kind {
public:
  sticky_fault(std::string_view name, std::string_view what, sticky_error how) : name_{name}, what_{what}, how_{how} {}
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] std::string_view what() const noexcept override { return what_; }
  [[nodiscard]] aftermath leads_to() const noexcept override { return aftermath::world_ends; }
  [[nodiscard]] bool needs_peers() const noexcept override { return false; }
  [[nodiscard]] raised_fault raise(const fault_scene& scene) const override {
    const auto own = std::make_shared<stream>(scene.where.device_of(scene.whom));
    const time_point now = monotonic_clock{}.now();
    scene.harm.at(place_of(scene)).poison(own->ref(), how_);
    raised_fault raised = happened_at(now);
    raised.held = own;
    return raised;
  }

private:
  std::string_view name_, what_;
  sticky_error how_;
};

} // namespace

std::span<const fault_kind* const> all_fault_kinds() {
  static const withheld_fault withheld;
  static const refused_fault refused;
  static const async_fault async;
  static const init_fault init;
  static const hung_init_fault hung_init;
  static const slow_abort_fault slow_abort;
  static const memory_fault memory;
  static const killed_fault killed;
  static const spinning_fault spinning;
  static const sticky_fault illegal_address{"illegal-address",
                                            "a client's kernel writes to an unmapped address (CUDA error 700)",
                                            sticky_error::illegal_address};
  static const sticky_fault assertion{"assertion", "an assertion in a client's kernel fails (CUDA error 710)",
                                      sticky_error::failed_assertion};
  static const std::array<const fault_kind*, 11> all{&withheld,  &refused,         &async,    &init,
                                                     &hung_init, &slow_abort,      &memory,   &killed,
                                                     &spinning,  &illegal_address, &assertion};
  return all;
}

std::string fault_kind_names() {
  std::string names;
  for (const fault_kind* one : all_fault_kinds()) names += (names.empty() ? "" : ", ") + std::string{one->name()};
  return names;
}

const fault_kind& find_fault_kind(std::string_view name) {
  const auto all = all_fault_kinds();
  const auto found = std::ranges::find(all, name, &fault_kind::name);
  if (found == all.end())
    throw exception{errc::invalid_argument,
                    "'" + std::string{name} + "' is not a kind of fault: choose some of " + fault_kind_names()};
  return **found;
}

} // namespace troupe::program
