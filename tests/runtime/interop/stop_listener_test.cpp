// Stop, answer and start() at once: one ending each, and nothing is touched after it. Without CAF: ThreadSanitizer sees
// all of it.
#include <troupe/runtime/interop/request_sender.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

/// What happened to an operation that may be gone.
struct stop_record {
  std::atomic<int> asked{0};
  std::atomic<int> taken_back{0};
  std::atomic<int> ended{0};
  std::atomic<bool> was_taken_back{false}; ///< By its ending.
};

/// Who answers: whoever comes first, the work or the wish to take it back.
class answering_world {
public:
  void ask(std::function<void(bool)> answer) {
    {
      const std::lock_guard lock{mutex_};
      waiting_ = std::move(answer);
      has_come_ = true;
      if (!is_early_) return;
    }
    finish(false);
  }
  void finish(bool taken_back) {
    std::function<void(bool)> answer;
    {
      const std::lock_guard lock{mutex_};
      is_early_ = is_early_ || (!has_come_ && !taken_back);
      answer = std::exchange(waiting_, {});
    }
    if (answer) answer(taken_back);
  }

private:
  std::mutex mutex_;
  std::function<void(bool)> waiting_;
  bool has_come_ = false;
  bool is_early_ = false;
};

/// As request_sender's state: it deletes itself by its ending.
template <class Token>
class stoppable {
public:
  stoppable(std::shared_ptr<answering_world> world, std::shared_ptr<stop_record> record)
    : world_{std::move(world)}, record_{std::move(record)} {}

  void start(const Token& token) {
    stop_.listen(token);
    if (stop_.is_wanted()) return end(true);
    ++record_->asked;
    world_->ask([this](bool taken_back) {
      is_taken_back_ = taken_back;
      if (stop_.answered()) end(taken_back);
    });
    stop_.asked();
    if (stop_.started()) end(is_taken_back_);
  }
  void take_back() {
    const auto record = record_;
    const auto world = world_;
    ++record->taken_back;
    world->finish(true);
  }

private:
  void end(bool taken_back) {
    stop_.silence();
    record_->was_taken_back = taken_back;
    ++record_->ended;
    delete this;
  }

  std::shared_ptr<answering_world> world_;
  std::shared_ptr<stop_record> record_;
  bool is_taken_back_ = false; ///< Written before answered(), read behind started().
  stop_listener<Token, stoppable> stop_{*this};
};

/// A token of another library's making, with a callback type of its own; stopped by one thread.
struct plain_stop {
  std::function<void()> heard{};
  bool is_requested = false;

  void request() {
    is_requested = true;
    if (const auto calling = heard) calling(); // a copy: it may be unregistered meanwhile
  }
};
struct plain_token {
  plain_stop* source;

  template <class Function>
  struct callback_type {
    plain_stop* source;
    callback_type(plain_token token, Function function) : source{token.source} {
      if (source->is_requested)
        function();
      else
        source->heard = function;
    }
    ~callback_type() { source->heard = {}; }
    callback_type(const callback_type&) = delete;
    callback_type& operator=(const callback_type&) = delete;
  };
  [[nodiscard]] bool stop_requested() const { return source->is_requested; }
  [[nodiscard]] bool stop_possible() const { return true; }
};
static_assert(stop_token<plain_token>);
static_assert(stop_token<std::stop_token>);
static_assert(stop_token<never_stop_token>);

struct receiver_with_token {
  std::stop_token token;
  [[nodiscard]] std::stop_token get_stop_token() const { return token; }
};
struct receiver_with_environment {
  std::stop_token token;
  [[nodiscard]] receiver_with_token get_env() const { return {token}; }
};
struct receiver_without_token {};
struct receiver_with_another_environment {
  [[nodiscard]] receiver_without_token get_env() const { return {}; }
};

} // namespace

TEST_CASE("a receiver's token is its own, or its environment's, or one that nobody stops",
          "[runtime][interop][senders][caf-free]") {
  std::stop_source source;
  CHECK(stop_token_of(receiver_with_token{source.get_token()}) == source.get_token());
  CHECK(stop_token_of(receiver_with_environment{source.get_token()}) == source.get_token());
  STATIC_CHECK(std::same_as<decltype(stop_token_of(receiver_without_token{})), never_stop_token>);
  STATIC_CHECK(std::same_as<decltype(stop_token_of(receiver_with_another_environment{})), never_stop_token>);
}

TEST_CASE("a request that is stopped before it starts is not sent", "[runtime][interop][senders][caf-free]") {
  const auto record = std::make_shared<stop_record>();
  const auto world = std::make_shared<answering_world>();
  SECTION("by std::stop_token") {
    std::stop_source source;
    source.request_stop();
    (new stoppable<std::stop_token>{world, record})->start(source.get_token());
  }
  SECTION("by a token of another library") {
    plain_stop source{.is_requested = true};
    (new stoppable<plain_token>{world, record})->start({&source});
  }
  CHECK(record->asked == 0);
  CHECK(record->taken_back == 0);
  CHECK(record->ended == 1);
}

TEST_CASE("a request that is stopped while it waits is withdrawn once, by the thread that stops it",
          "[runtime][interop][senders][caf-free]") {
  const auto record = std::make_shared<stop_record>();
  const auto world = std::make_shared<answering_world>();
  SECTION("by std::stop_token") {
    std::stop_source source;
    (new stoppable<std::stop_token>{world, record})->start(source.get_token());
    CHECK(record->ended == 0);
    source.request_stop(); // which ends it, and its callback, under the callback's feet
    source.request_stop();
  }
  SECTION("by a token of another library") {
    plain_stop source;
    (new stoppable<plain_token>{world, record})->start({&source});
    CHECK(record->ended == 0);
    source.request();
  }
  CHECK(record->taken_back == 1);
  CHECK(record->was_taken_back);
  CHECK(record->ended == 1);
}

TEST_CASE("a request that is stopped after its answer is not withdrawn", "[runtime][interop][senders][caf-free]") {
  const auto record = std::make_shared<stop_record>();
  const auto world = std::make_shared<answering_world>();
  plain_stop source;
  (new stoppable<plain_token>{world, record})->start({&source});
  world->finish(false);
  CHECK(record->ended == 1);
  source.request();
  CHECK(record->taken_back == 0);
}

TEST_CASE("a token that cannot be stopped, or is gone, changes nothing", "[runtime][interop][senders][caf-free]") {
  const auto record = std::make_shared<stop_record>();
  const auto world = std::make_shared<answering_world>();
  SECTION("none") {
    (new stoppable<never_stop_token>{world, record})->start({});
  }
  SECTION("one without a source") {
    (new stoppable<std::stop_token>{world, record})->start({});
  }
  SECTION("one whose source has gone") {
    const std::stop_token token = std::stop_source{}.get_token();
    (new stoppable<std::stop_token>{world, record})->start(token);
  }
  CHECK(record->ended == 0);
  world->finish(false);
  CHECK(record->ended == 1);
  CHECK(record->taken_back == 0);
}

TEST_CASE("an answer before start() has returned is handed on by start()", "[runtime][interop][senders][caf-free]") {
  const auto record = std::make_shared<stop_record>();
  const auto world = std::make_shared<answering_world>();
  world->finish(false);
  std::stop_source source;
  (new stoppable<std::stop_token>{world, record})->start(source.get_token());
  CHECK(record->ended == 1);
  CHECK_FALSE(record->was_taken_back);
  source.request_stop();
  CHECK(record->taken_back == 0);
}

TEST_CASE("start, stop and answer at once end an operation once", "[runtime][interop][senders][caf-free]") {
  constexpr int rounds = 4000;
  constexpr int stoppers = 2;
  int round = -1;
  int taken_back = 0;
  int answered = 0;
  int unasked = 0;
  int wrong = 0;
  std::shared_ptr<stop_record> record;
  std::shared_ptr<answering_world> world;
  std::stop_source source;
  stoppable<std::stop_token>* operation = nullptr;
  std::atomic<bool> has_started = false;
  // By the last thread of each round, while the others wait: it judges the round, and prepares the next.
  const auto turn_over = [&]() noexcept {
    if (round >= 0) {
      const bool is_alone = round % 3 == 0 && round % 4 == 3; // neither stopped nor answered
      if (is_alone) {
        wrong += record->ended == 0 ? 0 : 1;
        world->finish(false);
      }
      wrong += record->ended == 1 && record->taken_back <= 1 ? 0 : 1;
      if (record->asked == 0) ++unasked;
      if (record->asked == 1 && record->was_taken_back) ++taken_back;
      if (!record->was_taken_back) ++answered;
    }
    if (++round == rounds) return;
    record = std::make_shared<stop_record>();
    world = std::make_shared<answering_world>();
    source = std::stop_source{};
    operation = new stoppable<std::stop_token>{world, record};
    has_started = false;
  };
  std::barrier begin{stoppers + 2, turn_over};
  const auto taking_part = [&](auto what) {
    return std::jthread{[&, what] {
      for (;;) {
        begin.arrive_and_wait();
        if (round == rounds) return;
        for (std::atomic<int> left{(round * 7) % 50}; left > 0;) --left; // not always in the same step
        what(round);
      }
    }};
  };
  {
    std::vector<std::jthread> threads;
    threads.push_back(taking_part([&](int) {
      operation->start(source.get_token());
      has_started = true;
      has_started.notify_all();
    }));
    threads.push_back(taking_part([&](int i) {
      if (i % 3 != 0) world->finish(false);
    }));
    for (int k = 0; k < stoppers; ++k)
      threads.push_back(taking_part([&](int i) {
        if (i % 5 == 0) has_started.wait(false); // in some rounds the stop surely finds an operation to take back
        if (i % 4 != 3) source.request_stop();
      }));
  }
  CHECK(wrong == 0);
  CHECK(unasked + taken_back + answered == rounds);
  CHECK(taken_back > 0);
  CHECK(answered > 0);
}

} // namespace troupe::tests
