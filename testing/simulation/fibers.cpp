#include <troupe/testing/simulation/fibers.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cxxabi.h>
#include <exception>
#include <iterator>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <ucontext.h>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define TROUPE_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TROUPE_ASAN_FIBERS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TROUPE_TSAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TROUPE_TSAN_FIBERS 1
#endif
#endif

#ifdef TROUPE_ASAN_FIBERS
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#ifdef TROUPE_TSAN_FIBERS
#include <sanitizer/tsan_interface.h>
#endif

namespace troupe {

namespace {

/// Sanitizers surround variables with memory of their own, so that frames are larger.
#ifdef TROUPE_ASAN_FIBERS
constexpr std::size_t frame_growth = 4;
#else
constexpr std::size_t frame_growth = 1;
#endif

} // namespace

struct fibers::fiber final : thread {
  /// The C++ runtime's per-thread exception state. Each fiber has its own, because it may be suspended inside a
  /// handler.
  struct exception_state {
    void* caught = nullptr;
    unsigned uncaught = 0;

    [[nodiscard]] static exception_state& of_thread() noexcept {
      return *reinterpret_cast<exception_state*>(abi::__cxa_get_globals()); // layout defined by the Itanium C++ ABI
    }
  };

  /// A stack above a page that cannot be accessed, so that an overflow ends the process and overwrites nothing.
  class stack_memory {
  public:
    explicit stack_memory(std::size_t size_bytes) : size_bytes_{size_bytes} {
      mapping_ =
          ::mmap(nullptr, guard_bytes + size_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapping_ == MAP_FAILED)
        throw std::system_error{errno, std::generic_category(), "cannot allocate a fiber's stack"};
      first_ = static_cast<std::byte*>(mapping_) + guard_bytes;
      if (::mprotect(first_, size_bytes_, PROT_READ | PROT_WRITE) != 0) {
        const int why = errno;
        ::munmap(mapping_, guard_bytes + size_bytes_);
        throw std::system_error{why, std::generic_category(), "cannot make a fiber's stack accessible"};
      }
#ifdef TROUPE_ASAN_FIBERS
      __lsan_register_root_region(first_, size_bytes_);
#endif
    }
    stack_memory(const stack_memory&) = delete;
    stack_memory& operator=(const stack_memory&) = delete;
    ~stack_memory() {
#ifdef TROUPE_ASAN_FIBERS
      __lsan_unregister_root_region(first_, size_bytes_);
#endif
      ::munmap(mapping_, guard_bytes + size_bytes_);
    }

    [[nodiscard]] void* first() const noexcept {
      return first_;
    }
    [[nodiscard]] std::size_t size_bytes() const noexcept {
      return size_bytes_;
    }

  private:
    static constexpr std::size_t guard_bytes = std::size_t{64} << 10U; ///< A multiple of every page size in use.

    void* mapping_ = nullptr;
    void* first_ = nullptr;
    std::size_t size_bytes_;
  };

  std::uint64_t number = 0;
  group of = 0;
  const machine_clock* clock = nullptr; ///< Of its group; null: virtual time.
  std::function<void()> body{};
  std::unique_ptr<stack_memory> stack{};
  ucontext_t context{};
  exception_state exceptions{};
  time_point until = time_point::max(); ///< In virtual time. Valid while it waits.
  bool over = false;
  bool is_ready = false; ///< It is in ready_ or held_.
  bool may_wait = true;
  thread_list joiners{};
  const void* stack_first = nullptr; ///< For the thread's own stack: set at the first switch away from it.
  std::size_t stack_bytes = 0;
#ifdef TROUPE_TSAN_FIBERS
  void* seen_as = nullptr;
#endif

  /// Switches from this fiber, which is running, to \p next.
  void hand_to(fiber& next) {
    exceptions = std::exchange(exception_state::of_thread(), next.exceptions);
#ifdef TROUPE_ASAN_FIBERS
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(over ? nullptr : &fake_stack, next.stack_first, next.stack_bytes);
#endif
#ifdef TROUPE_TSAN_FIBERS
    __tsan_switch_to_fiber(next.seen_as, 0);
#endif
    if (::swapcontext(&context, &next.context) != 0) std::terminate();
#ifdef TROUPE_ASAN_FIBERS
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }
};

/// Stacks of ended fibers, for later ones: mapping and unmapping them took a third of a small world's CPU time.
class fibers::spare_stacks {
public:
  [[nodiscard]] std::unique_ptr<fiber::stack_memory> take(std::size_t size_bytes) {
    if (kept_.empty()) return std::make_unique<fiber::stack_memory>(size_bytes);
    std::unique_ptr<fiber::stack_memory> last = std::move(kept_.back());
    kept_.pop_back();
    return last;
  }
  void give_back(std::unique_ptr<fiber::stack_memory> stack) {
#if !defined(TROUPE_ASAN_FIBERS) && !defined(TROUPE_TSAN_FIBERS) // which forget a stack's use only when it is unmapped
    kept_.push_back(std::move(stack));
#else
    stack = nullptr;
#endif
  }

private:
  std::vector<std::unique_ptr<fiber::stack_memory>> kept_;
};

fibers::fibers(chooser choose, std::size_t stack_bytes)
  : choose_{std::move(choose)},
    stack_bytes_{stack_bytes * frame_growth},
    stacks_{std::make_unique<spare_stacks>()},
    outside_{std::make_unique<fiber>()} {
#ifdef TROUPE_TSAN_FIBERS
  outside_->seen_as = __tsan_get_current_fiber();
#endif
  set_current(this);
}

fibers::~fibers() {
  set_current(nullptr);
  if (living_ == 0) return;
  // Abandoned fibers keep their resources until the process ends, because their stacks cannot be unwound.
  static auto* const given_up = new std::vector<std::shared_ptr<fiber>>;
  for (auto& one : all_)
    if (!one->over) given_up->push_back(std::move(one));
}

void fibers::enter(unsigned high, unsigned low) {
  // makecontext passes only ints.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* const self = reinterpret_cast<fibers*>((static_cast<std::uintptr_t>(high) << 32U) | low);
  fiber& mine = *self->running_;
#ifdef TROUPE_ASAN_FIBERS
  __sanitizer_finish_switch_fiber(nullptr, &self->outside_->stack_first, &self->outside_->stack_bytes);
#endif
  try {
    std::exchange(mine.body, nullptr)();
  } catch (...) {
    std::terminate(); // as std::thread does
  }
  mine.over = true;
  self->wake(mine.joiners);
  mine.hand_to(*self->outside_);
}

std::shared_ptr<thread_scheduler::thread> fibers::start(std::function<void()> body) {
  auto made = std::make_shared<fiber>();
  made->number = next_++;
  made->of = caller().of;
  made->clock = caller().clock;
  made->body = std::move(body);
  made->stack = stacks_->take(stack_bytes_);
  made->stack_first = made->stack->first();
  made->stack_bytes = made->stack->size_bytes();
  if (::getcontext(&made->context) != 0)
    throw std::system_error{errno, std::generic_category(), "cannot create a fiber's context"};
  made->context.uc_stack.ss_sp = made->stack->first();
  made->context.uc_stack.ss_size = made->stack->size_bytes();
  made->context.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&made->context, reinterpret_cast<void (*)()>(&fibers::enter), 2, static_cast<unsigned>(self >> 32U),
                static_cast<unsigned>(self));
#ifdef TROUPE_TSAN_FIBERS
  made->seen_as = __tsan_create_fiber(0);
#endif
  ++living_;
  all_.push_back(made);
  make_ready(*made);
  return made;
}

void fibers::run_turn(fiber& one) {
  running_ = &one;
  outside_->hand_to(one);
  running_ = nullptr;
  if (!one.over) return;
  --living_;
#ifdef TROUPE_TSAN_FIBERS
  __tsan_destroy_fiber(one.seen_as);
#endif
  stacks_->give_back(std::move(one.stack));
  std::erase_if(all_, [&](const auto& each) { return each.get() == &one; });
}

fibers::no_wait_scope::no_wait_scope() noexcept {
  if (const fibers* const all = current(); all != nullptr && all->running_ != nullptr)
    before_ = std::exchange(all->running_->may_wait, false);
}

fibers::no_wait_scope::~no_wait_scope() {
  if (const fibers* const all = current(); all != nullptr && all->running_ != nullptr)
    all->running_->may_wait = before_;
}

fibers::group_scope::group_scope(group of) noexcept {
  if (const fibers* const all = current()) before_ = all->assign(all->caller(), of);
}

fibers::group_scope::~group_scope() {
  if (const fibers* const all = current()) static_cast<void>(all->assign(all->caller(), before_));
}

fibers::group fibers::assign(fiber& one, group of) const noexcept {
  const auto found = clocks_.find(of);
  one.clock = found == clocks_.end() ? nullptr : found->second.get();
  return std::exchange(one.of, of);
}

void fibers::set_clock(group which, std::shared_ptr<const machine_clock> clock) {
  const auto& reads = clocks_.try_emplace(which, clock).first->second;
  if (reads != clock)
    throw exception{errc::internal, "group " + std::to_string(which) + " of fibers has the clock of another machine"};
}

time_point fibers::boot_now() const noexcept {
  const machine_clock* const clock = caller().clock;
  return clock == nullptr ? now_ : clock->since_boot(now_);
}

time_point fibers::now() const noexcept {
  const machine_clock* const clock = caller().clock;
  return clock == nullptr ? now_ : clock->steady(now_);
}

fibers::virtual_clock_scope::virtual_clock_scope() noexcept {
  if (const fibers* const all = current()) before_ = std::exchange(all->caller().clock, nullptr);
}

fibers::virtual_clock_scope::~virtual_clock_scope() {
  if (const fibers* const all = current()) all->caller().clock = before_;
}

time_point fibers::virtual_time(time_point when) const noexcept {
  const machine_clock* const clock = caller().clock;
  return clock == nullptr ? when : clock->when_steady(when);
}

void fibers::resume(group which) {
  suspended_.erase(which);
  std::ranges::copy_if(held_, std::back_inserter(ready_), [which](const fiber* one) { return one->of == which; });
  std::erase_if(held_, [which](const fiber* one) { return one->of == which; });
}

void fibers::hold_suspended() {
  if (suspended_.empty()) return;
  const auto is_suspended = [this](const fiber* one) { return suspended_.contains(one->of); };
  std::ranges::copy_if(ready_, std::back_inserter(held_), is_suspended);
  std::erase_if(ready_, is_suspended);
}

bool fibers::step(time_point until) {
  hold_suspended();
  while (ready_.empty() && !timers_.empty()) {
    const time_point next = std::get<0>(*timers_.begin());
    if (next > until) return false;
    now_ = std::max(now_, next);
    while (!timers_.empty() && std::get<0>(*timers_.begin()) <= now_) {
      make_ready(*std::get<2>(*timers_.begin()));
      timers_.erase(timers_.begin());
    }
    hold_suspended();
  }
  if (ready_.empty()) return false;
  const std::size_t chosen = ready_.size() == 1 ? 0 : choose_(ready_.size());
  fiber& next = *ready_[chosen];
  next.is_ready = false;
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(chosen));
  run_turn(next);
  return true;
}

bool fibers::run(const std::function<bool()>& enough, time_point until) {
  while (!enough())
    if (!step(until)) return enough();
  return true;
}

void fibers::give_way(thread_list& list, time_point until) {
  fiber& mine = *running_;
  if (!mine.may_wait) ++forbidden_waits_;
  mine.until = virtual_time(until);
  list.push_back(&mine);
  if (mine.until != time_point::max()) timers_.emplace(mine.until, mine.number, &mine);
  mine.hand_to(*outside_);
  std::erase(list, static_cast<thread*>(&mine)); // needed if the fiber woke because the time passed
}

void fibers::wake(thread_list& list) noexcept {
  for (thread* const waiting : list) {
    auto* const one = static_cast<fiber*>(waiting);
    timers_.erase({one->until, one->number, one});
    make_ready(*one);
  }
  list.clear();
}

void fibers::make_ready(fiber& one) {
  if (!std::exchange(one.is_ready, true)) ready_.push_back(&one);
}

void fibers::sleep(nanoseconds span) {
  if (running_ != nullptr) {
    const time_point until = later(now(), span);
    thread_list nobody;
    do give_way(nobody, until);
    while (now() < until); // its clock may have been stopped
    return;
  }
  const time_point until = later(now_, span);
  while (step(until)) {
  }
  now_ = std::max(now_, until);
}

void fibers::wait(thread_list& list, time_point until) {
  // When called outside the fibers, one turn of a fiber may make the condition true. If no fiber is ready, the wait can
  // only end by its time limit.
  if (running_ != nullptr) return give_way(list, until);
  const time_point limit = virtual_time(until);
  if (!step(limit) && limit != time_point::max()) now_ = std::max(now_, limit);
}

bool fibers::is_running(const thread& one) const noexcept {
  return running_ == &one;
}

void fibers::join(thread& ended) {
  auto& one = static_cast<fiber&>(ended);
  if (running_ == nullptr) {
    run([&] { return one.over; });
    return;
  }
  while (!one.over) give_way(one.joiners, time_point::max());
}

} // namespace troupe
