// A model of comm/thread/rendezvous.cpp and exchange.cpp for the machine of weak_memory.h. Its functions are those of
// the sources, without what has no part in the order of memory.
#pragma once

#include "comm/thread/orders.h"
#include "comm/weak_memory.h"

namespace echelon::weak {

/// Those of the sources, or one of them weaker.
struct Orders {
  Order append = order::append, find_next = order::find_next, release_exchange = order::release_exchange,
        put_spare = order::put_spare, take_spare = order::take_spare, arrive = order::arrive,
        finish_chunk = order::finish_chunk, see_word = order::see_word, set_word = order::set_word,
        see_sleepers = order::see_sleepers, count_sleeper = order::count_sleeper,
        see_word_before_sleep = order::see_word_before_sleep, become_busy = order::become_busy,
        see_abort = order::see_abort, abort = order::abort, see_busy = order::see_busy, end_busy = order::end_busy,
        wake = order::wake, wake_up = order::wake_up;
};

/// Every party waits for an operation after it has started the next ones.
struct Operations {
  int num_parties = 2, num_rounds = 2, num_in_flight = 1;
};

/// Parties join an exchange in every round, give it a buffer and read a result. The last one to arrive does the work.
/// Exchanges are used again.
[[nodiscard]] Outcome explore_rendezvous(const Orders& orders, const Operations& operations);

/// Three threads take an exchange each, reset it and put it back.
[[nodiscard]] Outcome explore_spare(const Orders& orders);

}  // namespace echelon::weak
