#include <troupe/processes/mock/formation_memory.hpp>

#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>
#include <troupe/processes/transport/shared_memory/shared_words.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <locale>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>

namespace troupe {

namespace {

// The words of the memory: a header, a slot for each rank, the rings.
constexpr std::uint64_t memory_magic = 0x4D524F4650555254U; // "TRUPFORM"
constexpr std::uint64_t memory_version = 2;
constexpr std::size_t header_words = 32;
constexpr std::size_t slot_words = 8;
constexpr std::size_t connected_at = 8; ///< The number of connected ranks.
constexpr std::size_t changes_at = 16;  ///< Counter of changes; ranks that join sleep on it.
enum slot_word : std::uint8_t { process_at, bell_at, first_bells_at, second_bells_at, presence_at };

constexpr std::size_t most_rings_bytes = std::size_t{4} << 20U; ///< The limit for one formation.
constexpr std::size_t least_capacity_bytes = std::size_t{2} << 10U;
constexpr std::size_t most_capacity_bytes = std::size_t{128} << 10U;

std::size_t capacity_words_for(std::size_t world_size, bool has_rings) {
  if (!has_rings) return 0;
  const std::size_t even = std::bit_floor(std::max<std::size_t>(1, most_rings_bytes / (world_size * world_size)));
  return std::clamp(even, least_capacity_bytes, most_capacity_bytes) / sizeof(std::uint64_t);
}

std::array<std::uint64_t, 2> digest_of(const unique_id& id) {
  std::array<std::uint64_t, 2> made{};
  for (std::size_t half = 0; half < made.size(); ++half) {
    std::uint64_t mixed = half + 1;
    for (std::size_t at = 0; at + 8 <= id.bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, id.bytes.data() + at, sizeof word);
      mixed = (mixed ^ word) * 0x9E3779B97F4A7C15U;
      mixed ^= mixed >> 29U;
    }
    made[half] = mixed * 0xD6E8FEB86659FD93U;
  }
  return made;
}

/// Returns the text of a symbolic link; empty if \p path does not exist or is not a link.
std::string read_link(const std::string& path) {
  std::array<char, 256> text{};
  const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
  return size > 0 ? std::string{text.data(), static_cast<std::size_t>(size)} : std::string{};
}

/// Returns the prefix of the names of this process's boards. It contains the user and the PID namespace, because
/// containers that share the folder number their processes independently.
std::string name_prefix() {
  std::string space = read_link("/proc/self/ns/pid"); // "pid:[4026531836]"
  std::erase_if(space, [](char one) { return one < '0' || one > '9'; });
  return "troupe-mock-" + std::to_string(::geteuid()) + "-" + space + "-";
}

/// The text of a board: "troupe-mock 1 pid 4711 fd 5 rank 0 of 8, 4198912 bytes".
struct board_text {
  pid_t process = 0;
  int descriptor = -1;
  int rank = 0;
  std::size_t world_size = 0;
  std::size_t size_bytes = 0;

  [[nodiscard]] std::string print() const {
    return "troupe-mock 1 pid " + std::to_string(process) + " fd " + std::to_string(descriptor) + " rank " +
           std::to_string(rank) + " of " + std::to_string(world_size) + ", " + std::to_string(size_bytes) + " bytes";
  }
  [[nodiscard]] static std::optional<board_text> parse(const std::string& text) {
    board_text made;
    std::istringstream in{text};
    in.imbue(std::locale::classic());
    std::string word;
    char comma{};
    in >> word >> word >> word >> made.process >> word >> made.descriptor >> word >> made.rank >> word >>
        made.world_size >> comma >> made.size_bytes;
    if (made.print() != text || made.process <= 0 || made.descriptor < 0) return std::nullopt;
    return made;
  }
};

bool has_ended(pid_t process) {
  try {
    return peer_process{process}.has_ended(); // true also for a zombie
  } catch (const exception& failed) {
    return failed.why().code == errc::rank_lost;
  }
}

/// Removes the boards of this user whose processes have ended before all ranks had joined.
void remove_stale_boards(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> all{::opendir(folder.c_str()), ::closedir};
  if (!all) return;
  const std::string prefix = name_prefix();
  while (const dirent* const one = ::readdir(all.get())) { // NOLINT(concurrency-mt-unsafe): no other thread reads it
    if (!std::string_view{one->d_name}.starts_with(prefix)) continue;
    const std::string path = folder + "/" + one->d_name;
    const auto board = board_text::parse(read_link(path));
    if (board && has_ended(board->process)) ::unlink(path.c_str());
  }
}

} // namespace

std::string board_folder() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

std::string board_name(const unique_id& id) {
  const auto digest = digest_of(id);
  return name_prefix() + std::to_string(digest[0]) + "-" + std::to_string(digest[1]);
}

formation_memory::formation_memory(const unique_id& id, rank self, int world_size, bool has_rings)
  : digest_{digest_of(id)},
    self_{self},
    world_size_{static_cast<std::size_t>(world_size)},
    capacity_words_{capacity_words_for(world_size_, has_rings)},
    size_bytes_{sizeof(std::uint64_t) *
                (ring(rank{0}, rank{0}) +
                 world_size_ * world_size_ * (has_rings ? ring_layout::first_data + capacity_words_ : 0))},
    path_{board_folder() + "/" + board_name(id)} {
  while (!open_board() && !publish_board()) {
  }
}

/// Opens the memory that the board names. Returns false if there is no board yet.
bool formation_memory::open_board() {
  constexpr int patience = 200;
  for (int tries = 0;; ++tries) {
    board_ = read_link(path_);
    struct stat found {};
    if (::lstat(path_.c_str(), &found) != 0) {
      if (errno == ENOENT) return false;
      throw_memory_failure("lstat", "the board of a formation, " + path_ + ", cannot be read");
    }
    const auto board = board_text::parse(board_);
    const auto refuse = [&](errc code, const std::string& reason) -> bool {
      throw exception{code, "the board of a formation, " + path_ + ", " + reason};
    };
    if (found.st_uid != ::geteuid()) return refuse(errc::internal, "belongs to another user: remove it");
    if (!board && read_link(path_) == board_)
      return refuse(errc::internal, "is of another version of troupe: start the same version everywhere, or remove it");
    if (!board) continue; // it was just removed
    if (board->world_size != world_size_)
      throw exception{errc::invalid_argument, "the unique id names a world of " + std::to_string(board->world_size) +
                                                  " ranks, not of " + std::to_string(world_size_)};
    const std::string holder = "/proc/" + std::to_string(board->process) + "/fd/" + std::to_string(board->descriptor);
    file_descriptor opened{::open(holder.c_str(), O_RDWR | O_CLOEXEC)};
    if (!opened && (errno == EMFILE || errno == ENFILE))
      throw_memory_failure("open", "the memory of a formation could not be opened, because no descriptor is left: "
                                   "raise the limit (ulimit -n)");
    if (!opened && has_ended(board->process)) {
      ::unlink(path_.c_str());
      throw exception{errc::communicator_failed, "rank " + std::to_string(board->rank) + " (process " +
                                                     std::to_string(board->process) +
                                                     ") has ended while the ranks joined"};
    }
    try {
      if (!opened) throw_memory_failure("open", what() + " cannot be opened");
      if (board->size_bytes != size_bytes_) return refuse(errc::internal, "names memory of another size");
      memory_.emplace(shared_memory::open(std::move(opened), size_bytes_, what()));
      const auto right = header();
      for (std::size_t i = 0; i < right.size(); ++i)
        if (words_of(0).load(i, std::memory_order_relaxed, {}) != right[i])
          return refuse(errc::internal, "names memory that is not of this formation");
      memory_->close_descriptor();
      return true;
    } catch (const exception&) {
      memory_.reset();
      // The publishing process may have closed the descriptor and reused its number. The board has then been removed,
      // too.
      if (read_link(path_) == board_ && tries >= patience) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{tries < 20 ? 0 : 1});
  }
}

/// Creates the memory and publishes it. Returns false if another rank has published a board first.
bool formation_memory::publish_board() {
  const std::string folder = path_.substr(0, path_.rfind('/'));
  remove_stale_boards(folder);
  memory_.emplace(shared_memory::create("troupe-mock", size_bytes_));
  const auto right = header();
  for (std::size_t i = 0; i < right.size(); ++i) words_of(0).store(i, right[i], std::memory_order_relaxed, {});
  board_ = board_text{.process = ::getpid(),
                      .descriptor = memory_->descriptor().native(),
                      .rank = self_.value(),
                      .world_size = world_size_,
                      .size_bytes = size_bytes_}
               .print();
  has_published_ = ::symlink(board_.c_str(), path_.c_str()) == 0;
  if (has_published_) return true;
  if (errno != EEXIST) throw_memory_failure("symlink", "the board of a formation, " + path_ + ", cannot be created");
  memory_.reset();
  return false;
}

formation_memory::~formation_memory() {
  retire_own();
}

void formation_memory::retire_own() noexcept {
  if (has_published_) retire();
}

void formation_memory::retire() noexcept {
  if (read_link(path_) == board_) ::unlink(path_.c_str());
  memory_->close_descriptor();
}

std::array<std::uint64_t, 6> formation_memory::header() const noexcept {
  return {memory_magic, memory_version, world_size_, capacity_words_, digest_[0], digest_[1]};
}

std::string formation_memory::what() const {
  return "the memory that the board of a formation, " + path_ + ", names (" + board_ + ")";
}

shared_words formation_memory::words_of(std::size_t at) const noexcept {
  return shared_words{memory_->words() + at};
}

std::size_t formation_memory::slot(rank one) const noexcept {
  return header_words + static_cast<std::size_t>(one.value()) * slot_words;
}

std::size_t formation_memory::ring(rank from, rank to) const noexcept {
  const auto index = static_cast<std::size_t>(from.value()) * world_size_ + static_cast<std::size_t>(to.value());
  return header_words + world_size_ * slot_words + index * (ring_layout::first_data + capacity_words_);
}

ring_layout formation_memory::layout(rank from, rank to) const noexcept {
  return {.capacity_words = capacity_words_,
          .seed = digest_[0] ^ (digest_[1] * (ring(from, to) + 1)), // each ring has a seed of its own
          .most_bytes = capacity_words_ * sizeof(std::uint64_t) / 4};
}

ring_writer<shared_words> formation_memory::writer(rank to) const {
  return {words_of(ring(self_, to)), layout(self_, to)};
}

ring_reader<shared_words> formation_memory::reader(rank from) const {
  return {words_of(ring(from, self_)), layout(from, self_)};
}

void formation_memory::take(const seat& mine) {
  std::uint64_t* const first = memory_->words() + slot(self_);
  std::uint64_t free = 0;
  if (!std::atomic_ref{first[process_at]}.compare_exchange_strong(free, ~std::uint64_t{0}))
    throw exception{errc::invalid_argument, "rank " + to_string(self_) + " has already joined this formation"};
  const shared_words at{first};
  at.store(bell_at, static_cast<std::uint64_t>(mine.bell), std::memory_order_relaxed, {});
  at.store(first_bells_at, mine.bells.words[0], std::memory_order_relaxed, {});
  at.store(second_bells_at, mine.bells.words[1], std::memory_order_relaxed, {});
  at.store(process_at, static_cast<std::uint64_t>(mine.process), std::memory_order_release, {});
  wake();
}

formation_memory::seat formation_memory::seat_of(rank one) const {
  const shared_words at = words_of(slot(one));
  const std::uint64_t process = at.load(process_at, std::memory_order_acquire, {});
  if (process == 0 || process > static_cast<std::uint64_t>(std::numeric_limits<pid_t>::max())) return {};
  return {.process = static_cast<pid_t>(process),
          .bell = static_cast<int>(at.load(bell_at, std::memory_order_relaxed, {})),
          .bells = {{at.load(first_bells_at, std::memory_order_relaxed, {}),
                     at.load(second_bells_at, std::memory_order_relaxed, {})}}};
}

void formation_memory::leave(presence as) noexcept {
  words_of(slot(self_)).store(presence_at, static_cast<std::uint64_t>(as), std::memory_order_release, {});
  wake();
}

formation_memory::presence formation_memory::presence_of(rank one) const {
  return static_cast<presence>(
      std::min<std::uint64_t>(words_of(slot(one)).load(presence_at, std::memory_order_acquire, {}),
                              static_cast<std::uint64_t>(presence::gone)));
}

void formation_memory::connected() noexcept {
  words_of(0).add(connected_at, 1, {});
  wake();
}

bool formation_memory::all_are_connected() const {
  return words_of(0).load(connected_at, std::memory_order_acquire, {}) >= world_size_;
}

std::uint64_t formation_memory::changes() const noexcept {
  return words_of(0).load(changes_at, std::memory_order_seq_cst, {});
}

void formation_memory::sleep(std::uint64_t seen, nanoseconds at_most) const noexcept {
  words_of(0).sleep(changes_at, seen, at_most, {});
}

void formation_memory::wake() noexcept {
  words_of(0).add(changes_at, 1, {});
  for (std::size_t i = 0; i < world_size_; ++i) words_of(0).wake(changes_at, {}); // one thread each
}

} // namespace troupe
