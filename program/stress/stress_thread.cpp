#include <troupe/program/bench/frame/reference_values.hpp>
#include <troupe/program/stress/stress_thread.hpp>
#include <troupe/program/support/counted_reply.hpp>

#include <troupe/runtime/interop/ask_into.hpp>

#include <string>
#include <thread>
#include <utility>
#include <variant>

namespace troupe::program {

stress_thread::stress_thread(stress_scene& scene, rank self, std::size_t client, const thread_pace& pace)
  : scene_{scene},
    self_{self},
    client_{client},
    pace_{pace},
    lane_{lane::named(stress_lane_name(client, 0))},
    chance_{scramble(client * 1'000 + static_cast<std::uint64_t>(self.value()))} {}

void stress_thread::run(epoch in, std::size_t first) {
  in_ = in;
  asker_ = next_client();
  // New memory for each epoch: failed operations may write to the old memory until they are aborted.
  stress_slot slot{scene_.where, self_, memory_kind::device, scene_.script.room_bytes()};
  for (std::size_t index = first;; ++index) {
    const stress_step step{client_, 0, index};
    const conform_piece piece = scene_.script.piece_of(step, in);
    group mine = part_of(piece, self_, slot.fill(piece, self_, scene_.values));
    if (mine.parts.empty()) continue; // This rank takes no part.
    std::vector<operation> requests;
    if (!slot.placed.empty()) requests.emplace_back(slot.image.upload());
    const std::size_t operation_at = requests.size();
    requests.push_back(as_operation(std::move(mine)));
    if (!slot.placed.empty()) requests.emplace_back(slot.image.download());
    const outcome_of_step ended = ask(step, std::move(requests), operation_at, piece.agreed);
    if (ended == outcome_of_step::over) break;
    if (ended == outcome_of_step::done && !slot.placed.empty()) {
      const std::string fault = slot.find_fault();
      scene_.ledger.verified(step, fault);
      if (!fault.empty()) break;
    }
    std::this_thread::sleep_for(
        nanoseconds{static_cast<std::int64_t>(chance_.below(static_cast<std::size_t>(pace_.longest_pause.count())))});
  }
  leave_lanes(scene_.where, self_, asker_);
}

stress_thread::outcome_of_step stress_thread::ask(const stress_step& step, std::vector<operation> requests,
                                                  std::size_t operation_at,
                                                  const std::optional<agreed_value>& expected) {
  const bool is_short = expected && step.index % 4 == 3;
  std::vector<std::shared_ptr<counted_reply>> replies;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    rank_request asked{.what = std::move(requests[i]), .epoch = in_, .lane = lane_};
    if (is_short) asked.deadline = pace_.short_deadline;
    const auto& reply = replies.emplace_back(std::make_shared<counted_reply>(doubled_));
    const bool is_operation = i == operation_at;
    scene_.ledger.asked();
    ask_into(
        scene_.where, self_, std::move(asked),
        counted_reply::answer_to(reply,
                                 [this, step, is_operation, is_agree = expected.has_value()](const outcome& result) {
                                   if (is_operation) keep_receipt(scene_, self_, step, in_, is_agree, result);
                                 }),
        asker_);
  }
  auto ended = outcome_of_step::done;
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const std::optional<outcome> result = replies[i]->wait(pace_.patience);
    if (!result) {
      scene_.ledger.verified(step, "a request was not answered");
      return outcome_of_step::over;
    }
    if (const error* const why = failure_of(*result)) {
      if (expected && is_refused_for_all(*why)) {
        scene_.ledger.refused();
        return outcome_of_step::refused; // an agree is the only request of its step
      }
      if (may_end_with_epoch(why->code))
        scene_.ledger.ended();
      else
        scene_.ledger.answered(*why);
      ended = outcome_of_step::over;
      continue;
    }
    scene_.ledger.answered();
    if (i != operation_at || !expected) continue;
    const std::string fault = find_value_fault(expected, std::get<completion>(*result));
    scene_.ledger.verified(step, fault);
    if (!fault.empty()) ended = outcome_of_step::over;
  }
  return ended;
}

} // namespace troupe::program
