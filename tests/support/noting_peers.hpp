/// A communicator that records the launched operations and executes none.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::tests {

/// One entry for each launch on a device, of all worlds. The device's launcher writes it; the test reads it while the
/// launcher is idle.
using launch_notes = std::vector<std::string>;

class noting_peers final : public communicator {
public:
  noting_peers(rank self, int world_size, std::shared_ptr<device> where, std::shared_ptr<launch_notes> notes,
               std::string world = {})
    : communicator{self, world_size, std::move(where)}, notes_{std::move(notes)}, world_{std::move(world)} {}

  void init() override {}
  bool do_launch_together(std::span<const operation* const> all, stream_ref, completion_word) override {
    std::string note;
    for (const operation* one : all) note += (note.empty() ? "" : " + ") + world_ + describe(*one);
    notes_->push_back(note);
    return false;
  }
  void check() override {}
  void abort() override {}
  void destroy() override {}

private:
  std::shared_ptr<launch_notes> notes_;
  std::string world_;
};

} // namespace troupe::tests
