/// Records what the clients of a run have received, so that it outlives a process that is killed, and judges it: no two
/// ranks may hold different values for one position.
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::program {

/// What was received.
enum class receipt_kind : std::uint8_t {
  answered,  ///< The value of an agree, in the reply to it.
  heard,     ///< A value that a driver has heard (world_driver::on_agreed()).
  refused,   ///< The order refuses an agree at all ranks; `text` is the code of the error.
  rejected,  ///< An agree ended with its epoch and certainly did not run (ONE-2); `text` is the code of the error.
  committed, ///< A commit succeeded; `step` is its number.
  resumed,   ///< The resume points of an epoch; `epoch` is the new one.
  fault,     ///< The client has found a fault, which `text` describes.
  counted,   ///< The requests of a world in this process so far, at the end of an epoch. `text`: JSON.
  ended      ///< The process has ended its work.
};

/// One thing that a client of a process has received.
struct receipt {
  receipt_kind kind{};
  std::string world{};
  std::string where{};    ///< The name of the lane. Empty if the client does not know it, as a driver does not.
  int rank = -1;          ///< In that world; −1: a driver.
  std::int64_t at_ns = 0; ///< By the monotonic clock, which all processes of a host share.
  troupe::epoch epoch{};
  std::uint64_t step = 0; ///< The number of the operation in its lane, the same at all ranks.
  agreed_value value{};
  std::shared_ptr<const resume_points> points{};
  std::string text{};
};

/// The file of one process's receipts. Threads: any.
class receipt_log {
public:
  /// Creates a file in \p folder, whose name begins with that of the process. Errors: missing.
  receipt_log(const std::filesystem::path& folder, const std::string& process);

  /// Writes \p one, and sets its time. When this returns, the receipt survives the end of this process: call it before
  /// the client acts on what it has received.
  void write(receipt one);

private:
  file_descriptor file_;
};

/// Returns "NAME-PID", the name of the file of this process's receipts; \p name as the launcher calls the process.
[[nodiscard]] std::string receipts_name(const std::string& name, std::int64_t pid);

/// Reads the receipts of all processes while they are written.
class receipt_reader {
public:
  explicit receipt_reader(std::filesystem::path folder) : folder_{std::move(folder)} {}

  /// Calls \p each with the name of the file and each receipt that was completely written since the last call, in the
  /// order of each file.
  void read(const std::function<void(const std::string& process, const receipt& one)>& each);

private:
  std::filesystem::path folder_;
  std::map<std::string, std::uint64_t> read_; ///< The bytes that have been read of each file.
};

/// What a run demands beyond the consistency of all receipts.
struct receipt_terms {
  std::uint64_t commit_every = 0; ///< Steps between two commits of a lane.
  /// Whether what decides the order outlives all faults. Then every value that any process has received is told to the
  /// next epoch, and no commit is forgotten; else those that a process of the next epoch has received.
  bool order_survives = true;
};

/// Compares the receipts of all processes. Values that are compared must be unique: each agree of the run has another.
///
/// Faults: two values at one position of one lane and epoch, in replies, resume points and what drivers hear; one value
/// at two positions; a request answered twice; a value where another rank was refused by the order, or told that the
/// agree certainly did not run (ONE-2); two reasons of one refusal;
/// resume points that differ between ranks, do not tell a value that was received at or beyond them, or tell an earlier
/// commit than the one before the last that succeeded (CUT-1); what the clients themselves report.
/// Memory: proportional to the number of positions. Threads: one at a time.
class receipt_judge {
public:
  explicit receipt_judge(receipt_terms terms) : terms_{terms} {}

  void take(const std::string& process, const receipt& one);
  /// Makes the comparisons that need all receipts. Call it once, at the end.
  void finish();

  struct totals {
    std::size_t received = 0;  ///< Values in replies to ranks' clients.
    std::size_t positions = 0; ///< Different positions among them, and those that were heard or told.
    std::size_t heard = 0;     ///< Values that drivers have heard, or have got in replies.
    std::size_t told = 0;      ///< Values in resume points.
    std::size_t told_anew = 0; ///< Those of them that the process had not received in a reply.
    std::size_t refused = 0;   ///< Agrees that the order has refused, by rank.
    std::size_t rejected = 0;  ///< Agrees that have ended with their epoch and certainly did not run, by rank.
    std::size_t commits = 0;
    std::size_t epochs = 0; ///< Epochs for which resume points were told.
    std::size_t faults = 0;
  };
  [[nodiscard]] const totals& sum() const noexcept { return totals_; }
  /// Returns the first faults, one line each.
  [[nodiscard]] const std::vector<std::string>& faults() const noexcept { return faults_; }

private:
  using number = std::uint32_t; ///< Of a name.
  struct place {
    number world = 0, where = 0;
    std::uint64_t epoch = 0, position = 0;
    friend auto operator<=>(const place&, const place&) = default;
  };
  struct place_hash {
    [[nodiscard]] std::size_t operator()(const place& one) const noexcept;
  };
  struct known_value {
    std::uint64_t digest = 0;
    std::string head{};                  ///< The value, shortened, for messages.
    std::optional<std::uint64_t> step{}; ///< Known from a reply.
    number first_holder = 0;
    std::vector<number> holders{}; ///< The processes that have received it in a reply.
  };
  struct told_points {
    std::string bytes{};
    std::shared_ptr<const resume_points> points{};
    number first_process = 0;
    std::set<number> processes{};
  };
  using lane_step = std::tuple<number, number, std::uint64_t, std::uint64_t>; ///< World, lane, epoch, step.
  using refusals = std::map<lane_step, std::pair<std::string, number>>;       ///< The code, and who was told first.

  [[nodiscard]] number number_of(const std::string& name);
  [[nodiscard]] std::string describe(const place& where) const;
  void fault(std::string what);
  known_value* take_value(number process, const place& at, const agreed_value& value);
  void take_answer(number process, const receipt& one);
  void take_points(number process, const receipt& one);
  void judge_told(const place& at, const known_value& one);
  void judge_commits();
  void judge_positions();
  void judge_refusal(const refusals& all, const place& at, const known_value& one);

  receipt_terms terms_;
  totals totals_{};
  std::vector<std::string> faults_;
  std::map<std::string, number> numbers_;
  std::vector<std::string> names_;
  std::unordered_map<place, known_value, place_hash> values_;
  std::unordered_map<std::uint64_t, place> places_; ///< By the digest of the value.
  std::map<std::pair<number, number>, std::map<std::uint64_t, std::set<std::uint64_t>>>
      answered_; ///< By process, and world and lane together: the steps of the latest epochs.
  refusals refused_, rejected_;
  /// World and lane: by epoch and process the last commit that has succeeded.
  std::map<std::pair<number, number>, std::map<std::pair<std::uint64_t, number>, std::uint64_t>> commits_;
  std::map<number, std::map<std::uint64_t, told_points>> points_; ///< By world and epoch.
};

} // namespace troupe::program
