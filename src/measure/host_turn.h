// One process of a host measures at a time.
#pragma once

#include <functional>

namespace echelon {

/// Waits until no other process of this host has a turn. Where no lock can be made, it waits for none.
class HostTurn {
 public:
  /// `waits` is called once if another process has the turn.
  explicit HostTurn(const std::function<void()>& waits);
  ~HostTurn();
  HostTurn(const HostTurn&) = delete;
  HostTurn& operator=(const HostTurn&) = delete;

 private:
  int file_ = -1;
};

}  // namespace echelon
