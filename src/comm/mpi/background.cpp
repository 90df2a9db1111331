#include "comm/mpi/background.h"

namespace echelon {

Background::Background(std::chrono::microseconds period, std::function<void()> advance)
    : thread_([this, period, advance = std::move(advance)] {
        for (; !is_stopped_; std::this_thread::sleep_for(period)) advance();
      }) {}

void Background::stop() {
  is_stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace echelon
