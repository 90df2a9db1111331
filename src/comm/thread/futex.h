// Sleeping on a 32-bit word until it changes: Linux' futex. Wider words are hashed into shared buckets by the standard
// library, where every wake wakes everyone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace echelon {

using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

using Deadline = std::chrono::steady_clock::time_point;

/// Sleeps while the word is `expected`; may return early without a reason. False if the deadline passed.
bool futex_wait(FutexWord& word, std::uint32_t expected, Deadline deadline);
/// Likewise without a deadline.
void futex_wait(FutexWord& word, std::uint32_t expected);
/// Wakes at most `count` of those who sleep on the word.
void futex_wake(FutexWord& word, int count);

}  // namespace echelon
