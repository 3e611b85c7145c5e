/// `troupe bench latency`: measures one small operation at a time, through every kind of client and by raw NCCL. For a
/// world of processes, start it in each of them: `troupe launch -n 4 -- troupe bench latency`.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/latency_table.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

/// What a way asks for.
enum class requested : std::uint8_t { sum, agree, barrier };

/// A way to send requests, and the setting that its world needs.
struct way {
  const char* name;
  ordering order;
  const char* what;
  std::unique_ptr<asker> (*make)(bench_rig& rig);
  requested of = requested::sum;
};

/// Returns the parts of \p count ranks for an agree on 8 bytes, or for a barrier.
std::vector<operation> parts_of(requested what, std::size_t count) {
  if (what == requested::barrier) return std::vector<operation>(count, barrier{});
  return std::vector<operation>(count, agree{agreement_rule::min, contribution{1}.bytes});
}

lane actors_lane() {
  return lane::named("bench actors");
}
lane threads_lane() {
  return lane::named("bench threads");
}

constexpr std::array<way, 14> ways{
    {{"null-actor", ordering::agreed,
      "CAF alone: a client actor asks an actor that answers at once; from message to reply message",
      [](bench_rig& rig) { return make_actor_asker(rig.rt.system(), rig.where, answered_by::null_actor); }},
     {"null-ranks", ordering::agreed,
      "CAF alone: each rank's client actor asks one actor, which answers all when the last has asked",
      [](bench_rig& rig) {
        return make_rank_actor_asker(rig.rt.system(), rig.where, actors_lane(), answered_by::null_meeting);
      }},
     {"world-actor", ordering::agreed, "a client actor asks the world; from message to reply message",
      [](bench_rig& rig) { return make_actor_asker(rig.rt.system(), rig.where); }},
     {"world-facade", ordering::agreed, "a plain thread asks the world through its handle",
      [](bench_rig& rig) { return make_thread_asker(rig.where); }},
     {"rank-actor", ordering::agreed, "each rank is asked by an actor of its own; troupe keeps the order",
      [](bench_rig& rig) { return make_rank_actor_asker(rig.rt.system(), rig.where, actors_lane()); }},
     {"rank-facade", ordering::agreed, "each rank is asked by a thread of its own; troupe keeps the order",
      [](bench_rig& rig) { return make_rank_thread_asker(rig.where, threads_lane()); }},
     {"caller-actor", ordering::caller, "as rank-actor, but the clients guarantee the order",
      [](bench_rig& rig) { return make_rank_actor_asker(rig.rt.system(), rig.where, actors_lane()); }},
     {"caller-facade", ordering::caller, "as rank-facade, but the clients guarantee the order",
      [](bench_rig& rig) { return make_rank_thread_asker(rig.where, threads_lane()); }},
     {"world-agree-actor", ordering::agreed, "as world-actor, an agree on 8 bytes in place of the sum",
      [](bench_rig& rig) { return make_actor_asker(rig.rt.system(), rig.where); }, requested::agree},
     {"world-agree-facade", ordering::agreed, "as world-facade, an agree on 8 bytes in place of the sum",
      [](bench_rig& rig) { return make_thread_asker(rig.where); }, requested::agree},
     {"agree-actor", ordering::agreed, "as rank-actor, an agree on 8 bytes in place of the sum",
      [](bench_rig& rig) {
        return make_rank_actor_asker(rig.rt.system(), rig.where, lane::named("bench agreeing actors"));
      },
      requested::agree},
     {"agree-facade", ordering::agreed, "as rank-facade, an agree on 8 bytes in place of the sum",
      [](bench_rig& rig) { return make_rank_thread_asker(rig.where, lane::named("bench agreeing threads")); },
      requested::agree},
     {"barrier-actor", ordering::agreed, "as rank-actor, a barrier in place of the sum",
      [](bench_rig& rig) {
        return make_rank_actor_asker(rig.rt.system(), rig.where, lane::named("bench meeting actors"));
      },
      requested::barrier},
     {"barrier-facade", ordering::agreed, "as rank-facade, a barrier in place of the sum",
      [](bench_rig& rig) { return make_rank_thread_asker(rig.where, lane::named("bench meeting threads")); },
      requested::barrier}}};
constexpr std::array orders{ordering::agreed, ordering::caller};

struct latency_options {
  bench_options common{5, 2'000};
  std::size_t bytes = 8;
  std::string memory = "pool";
  std::vector<std::string> wanted{"raw",        "null-actor",  "world-actor",  "world-facade",
                                  "rank-actor", "rank-facade", "caller-actor", "caller-facade"};
};

/// A measured way, with its number in the table.
struct chosen_way {
  const way* how;
  std::size_t number;
};

class latency_measurement {
public:
  explicit latency_measurement(const latency_options& options)
    : options_{options.common},
      bytes_{float_bytes(options.bytes)},
      memory_{parse_operand_memory(options.memory)},
      settings_{options.common.runtime.settings()} {
    for (const std::string& name : options.wanted) {
      const auto found = std::ranges::find(ways, name, &way::name);
      if (name == "raw")
        with_raw_ = true;
      else if (found == ways.end())
        throw exception{errc::invalid_argument, "unknown way '" + name + "': choose some of raw" + names()};
      else if (spans_processes() && (found->order != settings_.ordering || name.starts_with("world")))
        continue;
      else if (std::ranges::none_of(chosen_, [&](const chosen_way& one) { return one.how == &*found; }))
        chosen_.push_back({&*found, table_.add_way(name, {{"way", name}, {"what", found->what}})});
    }
    if (chosen_.empty() && !with_raw_)
      throw exception{errc::invalid_argument, "none of the ways can be measured in a world of processes whose ordering "
                                              "is " +
                                                  std::string{to_string(settings_.ordering)} +
                                                  ": choose rank-* if it is agreed, caller-* if it is caller"};
  }

  [[nodiscard]] int run() {
    progress_line progress{stderr, static_cast<double>(options_.blocks * (spans_processes() ? 1 : orders.size()))};
    if (spans_processes()) {
      bench_rig rig{settings_, with_raw_};  // A process joins its world once.
      const auto askers = make_askers(rig); // once: a lane stays with its client until the order has heard of its end
      for (std::size_t block = 0; block < options_.blocks; ++block) measure(rig, askers, block, progress);
    } else {
      interleave(options_.blocks, orders.size(), [&](std::size_t i, std::size_t block) {
        configuration settings = settings_;
        settings.ordering = orders[i];
        const bool needed = chosen_.empty() || !ways_with(orders[i]).empty();
        if (!needed) return;
        bench_rig rig{settings, with_raw_};
        measure(rig, make_askers(rig), block, progress);
      });
    }
    if (!session_) return 0;
    progress.clear();
    table_.print(session_->out());
    std::fputs("#\n# histogram: the number of requests in each range of times\n", session_->out());
    table_.print_histogram(session_->out());
    table_.add_to(session_->report, true);
    return session_->finish();
  }

private:
  static std::string names() {
    std::string all;
    for (const way& one : ways) all += ", " + std::string{one.name};
    return all;
  }

  [[nodiscard]] std::string at(ordering order, std::size_t block) const {
    return at_block("latency, order by " + std::string{to_string(order)}, block + 1, options_.blocks);
  }

  /// Returns whether the launched processes form one world. Requests then go only to ranks, and only rank 0 reports.
  [[nodiscard]] bool spans_processes() const noexcept { return !settings_.control.address.empty(); }

  [[nodiscard]] std::vector<chosen_way> ways_with(ordering order) const {
    std::vector<chosen_way> found;
    std::ranges::copy_if(chosen_, std::back_inserter(found),
                         [&](const chosen_way& one) { return one.how->order == order; });
    return found;
  }

  /// Returns one asker for each of ways_with() the ordering of \p rig.
  [[nodiscard]] std::vector<std::unique_ptr<asker>> make_askers(bench_rig& rig) const {
    std::vector<std::unique_ptr<asker>> made;
    for (const chosen_way& one : ways_with(rig.rt.settings().ordering)) made.push_back(one.how->make(rig));
    return made;
  }

  /// Measures one block of each chosen way of asking that uses the ordering with which \p rig was made, by \p askers.
  void measure(bench_rig& rig, const std::vector<std::unique_ptr<asker>>& askers, std::size_t block,
               progress_line& progress) {
    const ordering order = rig.rt.settings().ordering;
    const std::vector<chosen_way> here = ways_with(order);
    if (!session_ && rig.has_rank_zero()) begin(rig, progress);
    const auto show = [&](const std::string& what) {
      if (session_) progress.show(at(order, block) + ", " + what);
    };
    const auto parts = make_sums(allocate_operands(rig.where, memory_, sums_bytes(bytes_, 1)), bytes_, 1).front();
    // Raw's communicators do not use registered memory, so raw gets pool memory as in `bench registered`.
    const auto raw_memory = memory_ == operand_memory::registered ? operand_memory::pool : memory_;
    const auto raw_parts =
        make_sums(allocate_operands(rig.where, raw_memory, sums_bytes(bytes_, 1)), bytes_, 1).front();

    const std::size_t warm_ups = std::max<std::size_t>(1, options_.iterations / 10);
    std::optional<double> raw_p50;
    if (rig.raw) {
      show("raw");
      static_cast<void>(rig.raw->run(raw_parts, warm_ups, 1));
      const auto times = in_microseconds(rig.raw->run(raw_parts, options_.iterations, 1).each);
      rig.raw->rest();
      raw_p50 = median(times);
      table_.add_raw_block(times);
    }
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::size_t what = (i + block) % here.size();
      show(here[what].how->name);
      const requested of = here[what].how->of;
      const auto mine = of == requested::sum ? parts : parts_of(of, parts.size());
      static_cast<void>(askers[what]->ask(mine, warm_ups, 1));
      const series measured = askers[what]->ask(mine, options_.iterations, 1);
      table_.add_block(here[what].number,
                       {.each = in_microseconds(measured.each), .spans = in_microseconds(measured.spans)}, raw_p50);
    }
    progress.done(1);
  }

  void begin(bench_rig& rig, progress_line& progress) {
    std::vector<std::string> heading{
        "all_reduce of f32, sum, in place, " + std::to_string(bytes_) + " bytes of " + std::string{to_string(memory_)} +
            " memory, one at a time, " + std::to_string(options_.iterations) + " in each of " +
            std::to_string(options_.blocks) + " interleaved blocks",
        "medians of blocks, max of all; request to reply as each client sees it; " +
            (spans_processes() ? "of rank 0, in one world of processes whose ordering is " +
                                     std::string{to_string(settings_.ordering)}
                               : std::string{"in each block a runtime for each ordering, with raw in both"})};
    if (with_raw_)
      heading.push_back("raw: the same call on blocking communicators of its own, a spinning thread for each GPU, from "
                        "the first rank's call to the last rank seen done" +
                        std::string{memory_ == operand_memory::registered ? "; on pool memory" : ""});
    for (const chosen_way& one : chosen_) heading.push_back(std::string{one.how->name} + ": " + one.how->what);
    progress.clear();
    session_.emplace("latency", options_)
        .begin(rig.rt, rig.where, heading,
               {{"iterations", options_.iterations},
                {"blocks", options_.blocks},
                {"size_bytes", bytes_},
                {"memory", to_string(memory_)}});
  }

  const bench_options& options_;
  std::size_t bytes_;
  operand_memory memory_;
  configuration settings_;
  bool with_raw_ = false;
  std::vector<chosen_way> chosen_;
  latency_table table_{"asked by"};
  std::optional<bench_session> session_; ///< Opened where rank 0 is.
};

int run(const latency_options& options) {
  latency_measurement bench{options};
  register_client_messages();
  return bench.run();
}

void add_options(CLI::App& command, latency_options& options) {
  options.common.add_to(command, "requests of each way in a block", 1'000'000);
  options.common.add_plot_to(command);
  add_size(command, "-b,--bytes", options.bytes, "bytes of the operation, e.g. 8 or 4K", "4");
  add_list(command, "--ways", options.wanted, "ways to compare, comma-separated");
  command.add_option("--memory", options.memory, "memory of the operands: ordinary (cuMemAlloc), pool or registered")
      ->capture_default_str();
}

} // namespace

bench_entry latency_bench() {
  return {.name = "latency",
          .what = "one small operation at a time, through every kind of client",
          .add = measured_by<latency_options>(&add_options, &run)};
}

} // namespace troupe::program
